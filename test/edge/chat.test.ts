import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Records } from "../../src/admin/records/Records.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { auditRow, call, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

inWorld(layerGateway())("a chat through the whole gateway", (test, it) => {
  test("when it is streamed, then it is NDJSON with the client's spelling, exact counts and one audit row", function* () {
    const { secret, tenant, prefix } = yield* newKey()
    const answer = yield* call("/api/chat", { secret, body: hello() })
    assert.strictEqual(answer.status, 200, answer.text)
    assert.strictEqual(answer.headers.get("content-type"), "application/x-ndjson")
    const frames = answer.text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line))
    assert.strictEqual(frames.map((frame) => frame.message.content).join(""), "Hello world!")
    assert.isTrue(frames.every((frame) => frame.model === "m"))
    assert.strictEqual(frames.at(-1).prompt_eval_count, 7)
    assert.strictEqual(frames.at(-1).eval_count, 3)
    const id = answer.headers.get("x-request-id")
    assert.deepInclude(yield* auditRow(id), {
      status: 200,
      tokens_in: 7n,
      tokens_out: 3n,
      model: "m:latest",
      usage_source: "backend",
      key_prefix: prefix
    })
    assert.strictEqual((yield* sql`SELECT 1 FROM audit_log WHERE request_id = ${id}::text::uuid`).length, 1)
    assert.strictEqual((yield* sql`SELECT 1 FROM intents`).length, 0)
    const usage = yield* Effect.flatMap(Registry, (registry) => registry.usage(tenant, "day"))
    assert.deepStrictEqual(usage, { requests: 1, tokensIn: 7, tokensCached: 0, tokensOut: 3 })
  })

  testWith(it.effect, Records.layer)(
    "when the backend had a part of the prompt in its cache, then the client, the audit, the sums and the metrics say so",
    function* () {
      const [backend, registry, records] = [yield* Fake, yield* Registry, yield* Records]
      const { secret, tenant } = yield* newKey()
      const lines = [
        wire.chat("x"),
        wire.done("chat", { prompt_eval_count: 7, prompt_eval_cached_count: 5, eval_count: 3 })
      ]
      backend.script({ does: "stream", lines }, { does: "stream", lines })
      const native = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
      assert.include(native.text, `"prompt_eval_count":7,"prompt_eval_cached_count":5`)
      const openai = yield* call("/v1/chat/completions", { secret, body: hello() })
      assert.deepInclude(JSON.parse(openai.text).usage, {
        prompt_tokens: 7,
        prompt_tokens_details: { cached_tokens: 5 }
      })
      // A third answer that does not say it.
      yield* call("/api/chat", { secret, body: hello() })
      const sums = { requests: 3, tokensIn: 21, tokensCached: 10, tokensOut: 9 }
      assert.deepStrictEqual(yield* registry.usage(tenant, "day"), sums)
      for (const by of ["tenant", "user"] as const) {
        const { rows } = yield* records.report({ by, tenant, since: undefined, until: undefined, top: 10 })
        assert.deepInclude(rows[0], sums)
      }
      const { rows } = yield* records.requests({ tenant, since: { agoMs: 60_000 }, limit: 10 })
      assert.deepStrictEqual(
        rows.map(({ tokens_cached }) => tokens_cached),
        [null, 5, 5]
      )
      const { text } = yield* call("/metrics")
      assert.include(text, `tollgate_tokens_cached_total{tenant="${tenant}",model="m:latest"} 10`)
    }
  )
})
