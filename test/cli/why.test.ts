/** Why requests were refused: what the audit stores, and the sentence of `requests` and `show-request`. */
import { assert, it } from "@effect/vitest"
import { Effect, Schema, Struct } from "effect"
import { samples } from "../../build/openapi/errors.ts"
import { whyOf } from "../../cli/why.ts"
import {
  BackendFailed,
  BudgetExhausted,
  backendFaults,
  Forbidden,
  forbidden,
  gates,
  type GatewayError,
  RateLimited,
  Unauthorized,
  Unavailable
} from "../../src/domain/Errors.ts"
import { noResets } from "../../src/domain/Limits.ts"
import { toErrorResponse } from "../../src/http/errors/errorResponses.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { tollgateBeside } from "./inProcess.ts"
import { json, succeeds } from "./tollgate.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

it("when there is an error of any kind, then the audit has a fixed reason, and a sentence says what to do", () => {
  const errors: ReadonlyArray<GatewayError> = [
    ...Object.values(samples).flat(),
    ...forbidden.map((what) => new Forbidden({ what })),
    ...Struct.keys(backendFaults).map((fault) => new BackendFailed({ fault })),
    ...Struct.keys(gates).flatMap((gate) => [
      new Unavailable({ gate, cause: "x" }),
      new Unavailable({ gate, cause: "x", crowded: true })
    ]),
    new Unauthorized({ ended: "tg_4fJ2kQ9sX" })
  ]
  const row = { key: "tg_4fJ2kQ9sX", tenant: "it's", model: "m:1", end_user: "ada" }
  for (const error of errors) {
    const detail = error.refusal
    assert.isAtMost(detail.length, 256)
    const { status, type } = toErrorResponse(error)
    const why = whyOf({ ...row, detail, status, error_type: type }) ?? ""
    assert.match(why, /^[A-Zm].{30,}/, detail)
    assert.notInclude(why, "NaN", detail)
    if (error._tag === "RateLimited") assert.match(why, /set-limits --key \S+ --(?:rpm|tpm|concurrent) n/)
    if (status === 413) assert.include(why, "raise MAX_REQUEST_BODY_BYTES")
    assert.notMatch(why, /undefined|about something|: failed/, detail)
  }
})

it("when a limit or budget for a model refuses, then the sentence names the model and the command for it", () => {
  const reached = { scope: "model", model: "llama3.2:3b", retryAfterS: 1 } as const
  const left = { limit: 1, remaining: 0 }
  const headroom = { requests: left, tokens: left, budgets: {}, resets: noResets }
  const of = (error: GatewayError) => {
    const { status, type } = toErrorResponse(error)
    const row = { key: "tg_4fJ2kQ9sX", tenant: "acme", model: "*", end_user: "ada" }
    return [error.message, whyOf({ ...row, detail: error.refusal, status, error_type: type })]
  }
  const raise = "tollgate set-limits --key tg_4fJ2kQ9sX --model llama3.2:3b"
  assert.deepStrictEqual(of(new RateLimited({ ...reached, limit: "requests", value: 10 })), [
    "the model's limit of 10 requests per minute reached",
    `The key's limit of 10 requests a minute for llama3.2:3b was reached: wait, or raise it ("${raise} --rpm n").`
  ])
  const budget = { ...reached, period: "day", value: 100, headroom } as const
  assert.deepStrictEqual(of(new BudgetExhausted({ ...budget, isSpent: true })), [
    "the model's daily budget of 100 tokens is spent",
    `The key's budget of 100 tokens a day for llama3.2:3b is spent: wait for the next day, or raise it ("${raise} --daily n").`
  ])
  assert.include(
    of(new BudgetExhausted({ ...budget, isSpent: false }))[1],
    "hold what is left of the key's budget of 100 tokens for llama3.2:3b: the client may"
  )
})

const Row = Schema.Struct({
  requests: Schema.Array(
    Schema.Struct({
      why: Schema.NullOr(Schema.String),
      row: Schema.Struct({ detail: Schema.NullOr(Schema.String) })
    })
  )
})

inWorld(layerGateway())("the reason of a refusal", (test) => {
  test("when requests are refused, then operators read why and what to do, and clients what they always read", function* () {
    const [fake, registry] = [yield* Fake, yield* Registry]
    const [some, poor, ended] = [
      yield* newKey({ models: ["m", "gone:1"], scopes: ["chat"] }),
      yield* newKey({ rpm: 1 }),
      yield* newKey()
    ]
    yield* registry.changeTenant(some.tenant, { budgetMonthly: 100_000 })
    yield* registry.revokeKey(ended.prefix)
    const broke = yield* newKey()
    yield* registry.changeKey(broke.prefix, { budgetDaily: 0 })
    const chat = (secret: string | undefined, more: Readonly<Record<string, unknown>> = {}) =>
      call("/api/chat", {
        ...(secret === undefined ? {} : { secret }),
        body: hello({ stream: false, ...more })
      })
    yield* chat(poor.secret)
    fake.script({ does: "answer", status: 500, body: '{"error":"oops"}' })
    const asked: ReadonlyArray<readonly [Effect.Success<ReturnType<typeof chat>>, string, RegExp]> = [
      [yield* chat(some.secret), "model server: status", /answered with an error: "tollgate status"/],
      [
        yield* chat(some.secret, { model: "other" }),
        "model not allowed",
        /other is installed[^]*show-key --prefix tg_[^]*set-models --key tg_\w+ --models …"[^]*--tenant tenant-\d+ --add other"/
      ],
      [
        yield* chat(some.secret, { model: "gone:1" }),
        "model not installed",
        /The model server has no gone:1/
      ],
      [
        yield* chat(some.secret, { stream: 1 }),
        "request: stream: expected boolean",
        /its client must change it: stream: expected/
      ],
      [
        yield* call("/api/embed", { secret: some.secret, body: { model: "m", input: "x" } }),
        "scope",
        /no scope for this endpoint/
      ],
      [
        yield* chat(poor.secret),
        "limit: 1 requests a minute, key",
        /limit of 1 requests a minute was reached[^]*set-limits --key tg_\w+ --rpm n/
      ],
      [
        yield* chat(broke.secret),
        "budget: 0 tokens, day, key",
        /budget of 0 tokens a day is spent[^]*--daily n/
      ],
      [
        yield* chat(ended.secret),
        `key: ${ended.prefix} is not in force`,
        /disabled, revoked or expired[^]*show-key --prefix tg_/
      ],
      [yield* chat(undefined), "key: none that is known", /no key that is known/],
      [yield* call("/api/ps", { secret: some.secret }), "path", /does not serve this path or method/],
      [
        yield* call("/v1/v1/models", { secret: some.secret }),
        "path: leave /v1 out of the client's base URL",
        /does not serve this path or method: leave \/v1 out of the client's base URL\./
      ]
    ]
    for (const [answer, detail, why] of asked) {
      const id = answer.headers.get("x-request-id") ?? ""
      yield* eventually(
        sql`SELECT 1 FROM audit_log WHERE request_id = ${id}::text::uuid`,
        ({ length }) => length === 1
      )
      const ran = yield* tollgateBeside("show-request", id, "--json")
      succeeds(ran)
      const [shown] = (yield* json(Row, ran)).requests
      assert.strictEqual(shown?.row.detail, detail)
      assert.match(shown?.why ?? "", why)
      assert.match((yield* tollgateBeside("show-request", id)).stdout, why)
      assert.notInclude(answer.text, "tollgate ")
    }
    const texts = asked.filter(([{ status }]) => status === 403).map(([{ text }]) => JSON.parse(text).error)
    assert.lengthOf(texts, 5)
    for (const text of texts) assert.deepStrictEqual(text, texts[0])
    assert.match(
      (yield* tollgateBeside("requests", "--key", poor.prefix)).stdout,
      /WHY\n[^]*The key's limit of 1 requests/
    )
  })
})
