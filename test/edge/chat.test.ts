import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../src/admin/Registry.ts"
import { auditRow, call, hello, layerGateway, newKey } from "../support/Gateway.ts"

const live = { excludeTestServices: true } as const

layer(layerGateway(), live)("a chat through the whole gateway", (it) => {
  it.effect(
    "when it is streamed, then it is NDJSON with the client's spelling, exact counts and one audit row",
    () =>
      Effect.gen(function* () {
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
        const sql = yield* SqlClient.SqlClient
        assert.strictEqual(
          (yield* sql`SELECT 1 FROM audit_log WHERE request_id = ${id}::text::uuid`).length,
          1
        )
        assert.strictEqual((yield* sql`SELECT 1 FROM intents`).length, 0)
        const usage = yield* Effect.flatMap(Registry, (registry) => registry.usage(tenant, "day"))
        assert.deepStrictEqual(usage, { requests: 1, tokensIn: 7, tokensOut: 3 })
      })
  )
})
