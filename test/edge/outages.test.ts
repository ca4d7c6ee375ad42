/**
 * Each gate gone in turn, with everything else well: 503 in the contract's shape, no call to the backend, and service
 * again as soon as the gate is back. The tables name every gate: one that is added does not compile without its row.
 */
import { assert } from "@effect/vitest"
import { Effect, Schema, Struct } from "effect"
import { type Gate, gates } from "../../src/domain/Errors.ts"
import { hello } from "../support/Gateway.ts"
import { ask } from "../support/posting.ts"
import { layerTwins, Twins } from "../support/Twins.ts"
import { inWorld } from "../support/testWith.ts"

const post = (path: string, secret?: string, body?: unknown) =>
  Effect.flatMap(Twins, ({ url }) => ask(new URL(path, url), { secret, body }))

const Refusal = Schema.fromJsonString(
  Schema.Struct({
    error: Schema.Struct({
      message: Schema.Literal("service temporarily unavailable"),
      type: Schema.Literal("service_unavailable"),
      code: Schema.Literal(503)
    }),
    request_id: Schema.String
  })
)

interface Row {
  /** a budget the key has, so that its gate has something to decide */
  readonly budget?: number
  /** whether a list, which asks nothing of this gate, is still answered */
  readonly lists: 200 | 503
  /** whether a row of the refusal is there at once; the audit's own outage keeps it for later */
  readonly rowAtOnce: boolean
}

const matrix = {
  KeyStore: { lists: 503, rowAtOnce: true },
  Discovery: { lists: 503, rowAtOnce: true },
  Limiter: { lists: 503, rowAtOnce: true },
  Budget: { budget: 1_000_000, lists: 503, rowAtOnce: true },
  Queue: { lists: 200, rowAtOnce: true },
  Audit: { lists: 503, rowAtOnce: false }
} as const satisfies Record<Gate, Row>

const calls = {
  "native, whole": { path: "/api/chat", body: hello({ stream: false }) },
  "native, streamed": { path: "/api/chat", body: hello({ stream: true }) },
  generate: { path: "/api/generate", body: { model: "m", prompt: "Hello", stream: false } },
  "openai, whole": { path: "/v1/chat/completions", body: hello() },
  "openai, streamed": { path: "/v1/chat/completions", body: hello({ stream: true }) }
}

inWorld(layerTwins)("each gate gone in turn", (test) => {
  for (const gate of Struct.keys(gates)) {
    const row: Row = matrix[gate]
    test(`when ${gate} is away, then the answer is 503, the backend is not called, and requests work again afterwards`, function* () {
      const twins = yield* Twins
      // Fresh keys: nothing of theirs is remembered anywhere.
      const keyOf = () => twins.newKey(row.budget === undefined ? {} : { total: row.budget })
      const fresh = keyOf()
      const before = twins.backendCalls()
      yield* twins.setDown[gate](true)
      const ids: Array<string> = []
      for (const [name, { path, body }] of Object.entries(calls)) {
        const answer = yield* post(path, fresh, body)
        assert.strictEqual(answer.status, 503, `${name}: ${answer.text}`)
        assert.strictEqual(answer.headers.get("content-type"), "application/json")
        const refusal = yield* Schema.decodeEffect(Refusal, { onExcessProperty: "error" })(answer.text)
        assert.strictEqual(refusal.request_id, answer.headers.get("x-request-id"))
        ids.push(refusal.request_id)
      }
      assert.strictEqual((yield* post("/api/tags", fresh)).status, row.lists)
      assert.strictEqual((yield* post("/api/chat", undefined, hello())).status, 401, "no key stays no key")
      assert.strictEqual((yield* post("/admin", fresh)).status, 403, "no path stays no path")
      assert.strictEqual((yield* post("/healthz")).status, 200)
      assert.strictEqual(twins.backendCalls(), before)
      if (row.rowAtOnce) {
        for (const id of ids)
          assert.deepInclude(twins.audit.tables.audit.get(id), { status: 503, tokens_in: 0 })
      }

      yield* twins.setDown[gate](false)
      for (const id of ids) {
        assert.deepInclude(twins.audit.tables.audit.get(id), {
          status: 503,
          error_type: "service_unavailable"
        })
      }
      for (const { path, body } of Object.values(calls)) {
        assert.strictEqual((yield* post(path, fresh, body)).status, 200)
      }
      assert.strictEqual(twins.backendCalls(), before + Object.keys(calls).length)
      assert.strictEqual(twins.audit.tables.intents.size, 0)
      // What was refused meanwhile has cost nothing: only what was served is in the window.
      const last = yield* post("/api/tags", fresh)
      assert.strictEqual(last.status, 200)
      assert.strictEqual(
        last.headers.get("x-ratelimit-remaining-requests"),
        String(1000 - Object.keys(calls).length)
      )
    })
  }

  test("when all gates are away at once, then it is still a 503, and they come back one by one", function* () {
    const twins = yield* Twins
    const secret = twins.newKey({ day: 1000, total: 1000 })
    for (const gate of Struct.keys(gates)) yield* twins.setDown[gate](true)
    const before = twins.backendCalls()
    for (const gate of Struct.keys(gates)) {
      assert.strictEqual((yield* post("/api/chat", secret, hello())).status, 503)
      yield* twins.setDown[gate](false)
    }
    assert.strictEqual(twins.backendCalls(), before)
    assert.strictEqual((yield* post("/api/chat", secret, hello())).status, 200)
  })
})
