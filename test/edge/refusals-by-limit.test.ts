/** What a client is told when a limit or a budget says no, and what it is told before that. */
import { assert } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { auditRow, call, eventually, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"
import { answerOf } from "./limits/budgets.ts"

const chat = (secret: string, more: Readonly<Record<string, unknown>> = {}) =>
  call("/api/chat", { secret, body: hello({ stream: false, ...more }) })

const bodyOf = (answer: { readonly text: string }) => JSON.parse(answer.text)

/** The headers that tell what is left, without the time until it is more. */
const left = ({ headers }: { readonly headers: Headers }) =>
  Object.fromEntries([...headers].filter(([name]) => /^x-(?:ratelimit|budget)-(?!reset)/.test(name)))

const limits = (requests: number, requestsLeft: number, tokens: number, tokensLeft: number) => ({
  "x-ratelimit-limit-requests": String(requests),
  "x-ratelimit-remaining-requests": String(requestsLeft),
  "x-ratelimit-limit-tokens": String(tokens),
  "x-ratelimit-remaining-tokens": String(tokensLeft)
})

const budget = (period: string, limit: number, remaining: number) => ({
  "x-budget-period": period,
  "x-budget-scope": "key",
  "x-budget-tokens-limit": String(limit),
  "x-budget-tokens-remaining": String(remaining)
})

const reset = ({ headers }: { readonly headers: Headers }) => ({
  requests: headers.get("x-ratelimit-reset-requests"),
  tokens: headers.get("x-ratelimit-reset-tokens"),
  budget: headers.get("x-budget-reset")
})

const hundred = answerOf(100)

inWorld(layerGateway())("limits and budgets", (test) => {
  test("when requests per minute are used, then they are counted down and refused with the seconds to wait", function* () {
    const { secret } = yield* newKey({ rpm: 2, tpm: 1000 })
    assert.deepStrictEqual(left(yield* chat(secret)), limits(2, 1, 1000, 990))
    assert.deepStrictEqual(left(yield* chat(secret)), limits(2, 0, 1000, 980))
    const refused = yield* chat(secret)
    const id = refused.headers.get("x-request-id")
    assert.strictEqual(refused.status, 429)
    assert.deepStrictEqual(bodyOf(refused), {
      error: {
        message: "limit of 2 requests per minute reached",
        type: "rate_limit_exceeded",
        code: 429
      },
      request_id: id
    })
    const wait = Number(refused.headers.get("retry-after"))
    assert.isTrue(Number.isInteger(wait) && wait >= 1 && wait <= 60, String(wait))
    assert.isNull(refused.headers.get("x-should-retry"))
    assert.deepStrictEqual(left(refused), limits(2, 0, 1000, 980))
    assert.deepInclude(yield* auditRow(id), {
      status: 429,
      error_type: "rate_limit_exceeded",
      tokens_in: 0n,
      tokens_out: 0n
    })
  })

  test("when tokens per minute are used, then the next request is refused", function* () {
    const [{ secret }, fake] = [yield* newKey({ rpm: 50, tpm: 100 }), yield* Fake]
    fake.script(hundred)
    assert.deepStrictEqual(left(yield* chat(secret)), limits(50, 49, 100, 0))
    const refused = yield* chat(secret)
    assert.strictEqual(refused.status, 429)
    assert.deepInclude(bodyOf(refused).error, {
      type: "token_limit_exceeded",
      message: "limit of 100 tokens per minute reached"
    })
    assert.match(refused.headers.get("retry-after") ?? "", /^[1-9]\d?$/)
    assert.deepStrictEqual(left(refused), limits(50, 49, 100, 0))
  })

  test("when a request is under way, then the next one beyond the concurrency is refused, for a second at a time", function* () {
    const [{ secret }, fake] = [yield* newKey({ concurrent: 1 }), yield* Fake]
    const calls = fake.requests.length
    fake.script({ does: "hang" })
    const first = yield* Effect.forkChild(chat(secret), { startImmediately: true })
    yield* fake.until(() => fake.requests.length > calls)
    const refused = yield* chat(secret)
    assert.strictEqual(refused.status, 429)
    assert.deepInclude(bodyOf(refused).error, {
      type: "concurrency_limit_exceeded",
      message: "limit of 1 request at a time reached"
    })
    assert.strictEqual(refused.headers.get("retry-after"), "1")
    yield* Fiber.interrupt(first)
    const again = yield* eventually(chat(secret), ({ status }) => status === 200)
    assert.strictEqual(again.status, 200)
  })

  test("when requests that run hold what is left of a budget, then the others may come back at once", function* () {
    const [{ secret, prefix }, fake] = [
      yield* newKey({ rpm: 500, tpm: 100_000, concurrent: 50 }),
      yield* Fake
    ]
    const long = { options: { num_predict: 4000 } }
    yield* (yield* Registry).changeKey(prefix, { budgetDaily: 1500 })
    const calls = fake.requests.length
    fake.script({ does: "hang" })
    const first = yield* Effect.forkChild(chat(secret, long), { startImmediately: true })
    yield* fake.until(() => fake.requests.length > calls)
    const others = Array.from({ length: 49 }, () => chat(secret, long))
    for (const refused of yield* Effect.all(others, { concurrency: "unbounded" })) {
      assert.strictEqual(refused.status, 429)
      assert.deepInclude(bodyOf(refused).error, {
        type: "budget_exceeded",
        message: "daily budget of 1500 tokens is held by requests that run"
      })
      assert.strictEqual(refused.headers.get("retry-after"), "1")
      assert.isNull(refused.headers.get("x-should-retry"))
    }
    yield* Fiber.interrupt(first)
    // What the first one cost depends on how long it ran.
    const again = yield* eventually(chat(secret), ({ text }) => !text.includes("is held by"))
    assert.notInclude(again.text, "is held by")
  })

  test("when there are several budgets, then the one with the fewest tokens is shown, and the wait is to the end of its period", function* () {
    const [{ secret, prefix }, fake] = [yield* newKey({ rpm: 50, tpm: 1000 }), yield* Fake]
    yield* (yield* Registry).changeKey(prefix, { budgetDaily: 100, budgetTotal: 150 })
    fake.script(hundred)
    assert.deepStrictEqual(left(yield* chat(secret)), {
      ...limits(50, 49, 1000, 900),
      ...budget("day", 100, 0)
    })
    const refused = yield* chat(secret)
    assert.strictEqual(refused.status, 429)
    assert.deepInclude(bodyOf(refused).error, {
      type: "budget_exceeded",
      message: "daily budget of 100 tokens is spent"
    })
    assert.strictEqual(refused.headers.get("x-should-retry"), "false")
    const toMidnight = 86_400 - (((yield* Clock.currentTimeMillis) / 1000) % 86_400)
    assert.approximately(Number(refused.headers.get("retry-after")), toMidnight, 2)
    assert.deepStrictEqual(left(refused), { ...limits(50, 49, 1000, 900), ...budget("day", 100, 0) })

    const second = yield* newKey({ rpm: 50, tpm: 1000 })
    yield* (yield* Registry).changeKey(second.prefix, { budgetTotal: 100 })
    fake.script(hundred)
    yield* chat(second.secret)
    const forEver = yield* chat(second.secret)
    assert.strictEqual(bodyOf(forEver).error.message, "total budget of 100 tokens is spent")
    assert.strictEqual(forEver.headers.get("retry-after"), "86400")
  })

  test("when an answer tells what is left, then it tells when all of it is left again, refusals included", function* () {
    const [{ secret, prefix }, fake] = [yield* newKey({ rpm: 2, tpm: 1000 }), yield* Fake]
    yield* (yield* Registry).changeKey(prefix, { budgetDaily: 100, budgetTotal: 100 })
    const unused = yield* call("/api/tags", { secret })
    assert.deepInclude(reset(unused), { requests: "0s", tokens: "0s" })
    fake.script(hundred)
    const answers = [yield* chat(secret), yield* chat(secret), yield* call("/v1/models", { secret })]
    assert.deepStrictEqual(
      answers.map(({ status }) => status),
      [200, 429, 200]
    )
    for (const answer of answers) {
      const { budget, requests, tokens } = reset(answer)
      for (const wait of [requests, tokens]) assert.match(wait ?? "", /^(?:\d|[1-5]\d)s$|^1m0s$/)
      // Both are spent. The total never ends, so it is the one that binds.
      assert.deepStrictEqual([answer.headers.get("x-budget-period"), budget], ["total", "86400"])
    }
    yield* (yield* Registry).changeKey(prefix, { budgetTotal: null })
    const today = yield* eventually(
      call("/api/tags", { secret }),
      ({ headers }) => headers.get("x-budget-period") === "day"
    )
    const toMidnight = 86_400 - (((yield* Clock.currentTimeMillis) / 1000) % 86_400)
    assert.approximately(Number(reset(today).budget), toMidnight, 2)
  })

  for (const [path, body, reason, pace] of [
    ["/api/chat", hello(), '"done_reason":"length"', { gapMs: 1 }],
    ["/v1/chat/completions", hello({ stream: true }), '"finish_reason":"length"', { gapMs: 1 }],
    ["/v1/chat/completions", hello({ stream: true }), '"finish_reason":"length"', { together: true }]
  ] as const) {
    test(`when a stream of ${path} outgrows the budget, then it ends with length, and not one token later`, function* () {
      const [{ secret, prefix }, fake] = [yield* newKey(), yield* Fake]
      yield* (yield* Registry).changeKey(prefix, { budgetTotal: 60 })
      // It ignores the bound it is given, which is what is left after the prompt's ten.
      fake.script({
        does: "stream",
        lines: Array.from({ length: 300 }, () => wire.chat("a")),
        ends: "hang",
        ...pace
      })
      const answer = yield* call(path, { secret, body })
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(JSON.parse(fake.requests.at(-1)?.raw ?? "{}").options.num_predict, 50)
      assert.strictEqual(answer.text.match(/"content":"a"/g)?.length, 50)
      assert.include(answer.text, reason)
      const row = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(row, { status: 200, tokens_in: 10n, tokens_out: 50n, usage_source: "counted" })
      const refused = yield* chat(secret)
      assert.strictEqual(bodyOf(refused).error.type, "budget_exceeded")
    })
  }

  test("when a request is authenticated, then its answer says what is left, with budgets only where one is set", function* () {
    const [fake, { secret, prefix }] = [yield* Fake, yield* newKey({ rpm: 9, tpm: 900, models: ["m"] })]
    const unspent = limits(9, 9, 900, 900)
    for (const path of ["/api/tags", "/api/version", "/v1/models"]) {
      const answer = yield* call(path, { secret })
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(left(answer), unspent, path)
    }
    const bad = yield* chat(secret, { stream: "yes" })
    assert.strictEqual(bad.status, 400)
    assert.deepStrictEqual(left(bad), unspent)
    const forbidden = yield* chat(secret, { model: "other" })
    assert.strictEqual(forbidden.status, 403)
    assert.deepStrictEqual(left(forbidden), unspent)
    const nobody = yield* call("/api/tags", { secret: `tg_${"0".repeat(41)}` })
    assert.strictEqual(nobody.status, 401)
    assert.deepStrictEqual(left(nobody), {})

    fake.script({ does: "answer", status: 500, body: '{"error":"boom"}' })
    const failed = yield* chat(secret)
    assert.strictEqual(failed.status, 502)
    assert.deepStrictEqual(left(failed), limits(9, 8, 900, 900))

    yield* (yield* Registry).changeKey(prefix, { budgetMonthly: 500 })
    const listed = yield* eventually(call("/api/tags", { secret }), ({ headers }) =>
      headers.has("x-budget-period")
    )
    assert.deepStrictEqual(left(listed), { ...limits(9, 8, 900, 900), ...budget("month", 500, 500) })
    const streamed = yield* call("/v1/chat/completions", { secret, body: hello({ stream: true }) })
    // A stream's headers go out with its first frame, when what is held still counts as used.
    assert.strictEqual(streamed.headers.get("x-budget-period"), "month")
    assert.deepStrictEqual(left(yield* call("/api/tags", { secret })), {
      ...limits(9, 7, 900, 890),
      ...budget("month", 500, 490)
    })
  })
})
