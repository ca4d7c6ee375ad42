/** What the backend refuses has cost a call, so it costs the request; its tokens and its slot are given back. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const answers = (status: number, text = "no"): Behaviour => ({
  does: "answer",
  status,
  body: JSON.stringify({ error: text })
})

const refusals: ReadonlyArray<readonly [string, Behaviour, number]> = [
  ["400", answers(400), 400],
  ["a 500 that the request caused", answers(500, "invalid JSON schema in format"), 400],
  ["404", answers(404), 403],
  ["busy", answers(503), 502],
  ["401", answers(401), 502],
  ["500", answers(500), 502],
  ["a redirect", { does: "answer", status: 302, headers: { location: "/" } }, 502],
  ["an error line", { does: "stream", lines: [fake.error("no")] }, 502],
  ["garbage", { does: "stream", lines: ["no"] }, 502],
  ["a reset", { does: "reset" }, 502]
]

const remaining = "x-ratelimit-remaining-requests"

inWorld(layerGateway({ BREAKER_FAILURES: "1000" }))("a key with 5 requests a minute", (test) => {
  for (const [how, behaviour, status] of refusals) {
    for (const [path, body] of [
      ["/api/chat", hello()],
      ["/api/embed", { model: "embedder", input: "a" }],
      ["/api/show", { model: "m" }]
    ] as const) {
      // One way to refuse is enough for the calls that answer whole: they end in the same place.
      if (path !== "/api/chat" && !["400", "404", "busy"].includes(how)) continue
      test(`when the backend answers ${path} with ${how}, then it is called five times at most`, function* () {
        const [backend, registry] = [yield* Fake, yield* Registry]
        const { secret, prefix } = yield* newKey({ rpm: 5, concurrent: 1 })
        yield* registry.changeKey(prefix, { budgetTotal: 1000 })
        yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes("m:latest"))
        backend.always(behaviour)
        const before = backend.requests.length
        const statuses: Array<number> = []
        for (let i = 0; i < 8; i += 1) {
          const answer = yield* call(path, { secret, body })
          statuses.push(answer.status)
          if (i < 5) assert.strictEqual(answer.headers.get(remaining), String(4 - i))
          assert.strictEqual(answer.headers.get("x-budget-tokens-remaining"), "1000")
        }
        backend.always(undefined)
        assert.deepStrictEqual(statuses, [
          ...Array.from({ length: 5 }, () => status),
          ...Array.from({ length: 3 }, () => 429)
        ])
        // A connection that died idle is tried once more, which is still one request.
        const calls = new Set(
          backend.requests.slice(before).map(({ raw, connection }) => `${raw}${connection}`)
        )
        if (behaviour.does !== "reset") assert.strictEqual(backend.requests.length - before, 5)
        else assert.isAtMost(calls.size, 10)
      })
    }
  }
})

inWorld(layerGateway({ BREAKER_OPEN_MS: "60000" }))("an open circuit", (test) => {
  test("when it refuses, then it costs nothing, and says when to come back", function* () {
    const backend = yield* Fake
    const failing = [yield* newKey(), yield* newKey()]
    backend.always(answers(500))
    for (let i = 0; i < 5; i += 1) {
      yield* call("/api/chat", { secret: failing[i % 2]?.secret ?? "", body: hello() })
    }
    const before = backend.requests.length
    const { secret } = yield* newKey({ rpm: 5, concurrent: 1 })
    for (let i = 0; i < 8; i += 1) {
      const answer = yield* call("/api/chat", { secret, body: hello() })
      assert.strictEqual(answer.status, 502)
      assert.match(answer.headers.get("retry-after") ?? "", /^(?:5\d|60)$/)
    }
    assert.strictEqual(backend.requests.length, before)
    const left = yield* eventually(
      call("/api/version", { secret }),
      ({ headers }) => headers.get(remaining) === "5"
    )
    assert.strictEqual(left.headers.get(remaining), "5")
  })

  test("when it refuses, then no intent is written before", function* () {
    const { secret } = yield* newKey()
    yield* Effect.acquireUseRelease(
      sql`ALTER TABLE intents RENAME TO intents_away`,
      () =>
        Effect.map(call("/api/chat", { secret, body: hello() }), ({ status, text }) =>
          assert.strictEqual(status, 502, text)
        ),
      () => sql`ALTER TABLE intents_away RENAME TO intents`
    )
  })
})
