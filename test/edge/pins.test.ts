/** Pinned models, over two gateways that share Postgres and Redis. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../src/admin/Registry.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerGateway,
  newKey,
  otherReplica
} from "../support/Gateway.ts"

const env = {
  BACKEND_MAX_CONCURRENT: "2",
  BACKEND_MAX_LOADED_MODELS: "2",
  MODEL_DISCOVERY_REFRESH_S: "1",
  CONCURRENCY_LEASE_S: "3"
}

layer(layerGateway(env), { excludeTestServices: true })("pinned models", (it) => {
  it.effect(
    "when a model is pinned, then one gateway loads it, without slot, tokens and row; clients cannot unload it",
    () =>
      Effect.gen(function* () {
        const [backend, registry, sql] = [yield* Fake, yield* Registry, yield* SqlClient.SqlClient]
        backend.setModels(["p:latest", "x:latest"])
        backend.setLoaded([])
        const other = yield* otherReplica(env)
        const { secret, tenant } = yield* newKey()
        const bodies = (path: string) =>
          backend.requests.flatMap(({ body, path: asked }) => (asked === path ? [body] : []))
        const loads = Effect.sync(() => bodies("/api/embed"))
        yield* registry.changePins({ pin: [{ model: "p", hours: null }] })
        yield* eventually(loads, ({ length }) => length > 0, 20_000)
        const expected = { model: "p:latest", input: [], keep_alive: 3600 }
        assert.deepStrictEqual(yield* loads, [expected])
        backend.setLoaded(["p:latest"])
        const shown = Effect.map(
          call("/metrics").pipe(Effect.provideService(Gateway, other)),
          ({ text }) => text
        )
        yield* eventually(
          shown,
          (text) =>
            text.includes('tollgate_queue_model_pinned{model="p:latest"} 1') &&
            text.includes('tollgate_queue_model_loaded{model="p:latest"} 1')
        )
        // Its slot is free, and it cost nothing.
        assert.strictEqual((yield* registry.usage(tenant, "total")).requests, 0)
        assert.deepStrictEqual(yield* sql`SELECT 1 FROM audit_log`, [])
        assert.deepStrictEqual(yield* sql`SELECT 1 FROM intents`, [])

        yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes('"p:latest"'))
        for (const [model, keepAlive] of [
          ["p", 3600],
          ["x", undefined]
        ] as const) {
          const answer = yield* call("/api/chat", {
            secret,
            body: hello({ model, keep_alive: 0, stream: false })
          })
          assert.strictEqual(answer.status, 200, answer.text)
          assert.strictEqual(bodies("/api/chat").at(-1)?.["keep_alive"], keepAlive, model)
        }
        assert.deepStrictEqual(yield* loads, [expected], "nothing was gone")

        yield* registry.changePins({ unpin: ["p:latest"] })
        yield* eventually(
          shown,
          (text) => !text.includes('tollgate_queue_model_pinned{model="p:latest"} 1'),
          20_000
        )
      }).pipe(Effect.scoped)
  )
})
