/** Aliases of models, over two replicas that share their stores. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, Gateway, layerGateway, layerGatewayOn, newKey } from "../support/Gateway.ts"

const live = { excludeTestServices: true } as const

/** A key of a tenant with one model for each kind of endpoint, and an alias for each. */
const aliasedKey = Effect.fnUntraced(function* () {
  const key = yield* newKey({ models: ["m", "embedder"] })
  const registry = yield* Registry
  yield* registry.setModels(key.tenant, { aliases: { fast: "m:latest", "openai/vectors": "embedder" } })
  return key
})

const messages = [{ role: "user", content: "hi" }]

/** Every endpoint that takes a model's name. */
const endpoints = [
  ["/api/chat", { model: "fast", messages, stream: false }, "m:latest"],
  ["/api/generate", { model: "fast:latest", prompt: "hi", stream: false }, "m:latest"],
  ["/api/show", { model: "fast" }, "m:latest"],
  ["/v1/chat/completions", { model: "fast", messages }, "m:latest"],
  ["/v1/completions", { model: "fast", prompt: "hi" }, "m:latest"],
  ["/api/embed", { model: "openai/vectors", input: "hi" }, "embedder:latest"],
  ["/api/embeddings", { model: "openai/vectors", prompt: "hi" }, "embedder:latest"],
  ["/v1/embeddings", { model: "openai/vectors", input: ["hi", "ho"] }, "embedder:latest"]
] as const

const rowOf = Effect.fnUntraced(function* (id: string | null) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* eventually(
    sql<{ readonly model: string | null; readonly alias: string | null; readonly status: number }>`
      SELECT model, alias, status FROM audit_log WHERE request_id = ${id}::text::uuid`,
    (rows) => rows.length === 1
  )
  return rows[0]
})

const Answered = Schema.fromJsonString(Schema.Struct({ model: Schema.optionalKey(Schema.String) }))

layer(layerGateway(), live)("aliases", (it) => {
  it.effect(
    "when a request names an alias, then its model answers under the alias, and the audit has both names",
    () =>
      Effect.gen(function* () {
        const [backend, { secret }] = [yield* Fake, yield* aliasedKey()]
        for (const [path, body, model] of endpoints) {
          const before = backend.requests.length
          const answer = yield* call(path, { secret, body })
          assert.strictEqual(answer.status, 200, path)
          assert.strictEqual(backend.requests[before]?.body?.["model"], model, path)
          assert.strictEqual(backend.requests.length, before + 1, path)
          const answered = yield* Schema.decodeEffect(Answered)(answer.text)
          if (answered.model !== undefined) assert.strictEqual(answered.model, body.model, path)
          assert.deepStrictEqual(yield* rowOf(answer.headers.get("x-request-id")), {
            model,
            alias: body.model.replace(":latest", ""),
            status: 200
          })
        }
        assert.notInclude((yield* call("/metrics")).text, "fast")
      })
  )

  it.effect("when an alias changes, then every replica uses the new one within about a second", () =>
    Effect.gen(function* () {
      const [backend, registry] = [yield* Fake, yield* Registry]
      const other = Context.get(yield* Layer.build(Layer.fresh(layerGatewayOn())), Gateway)
      const { secret, tenant } = yield* newKey()
      const ask = Effect.gen(function* () {
        const before = backend.requests.length
        const { status } = yield* call("/v1/chat/completions", { secret, body: { model: "fast", messages } })
        return status === 200 ? backend.requests[before]?.body?.["model"] : status
      })
      const onBoth = Effect.all([ask, Effect.provideService(ask, Gateway, other)])
      const becomes = (expected: unknown) =>
        Effect.map(
          eventually(onBoth, (found) => found.every((one) => one === expected)),
          (found) => assert.deepStrictEqual<unknown>(found, [expected, expected])
        )
      yield* becomes(403)
      yield* registry.setModels(tenant, { aliases: { fast: "m" } })
      yield* becomes("m:latest")
      yield* registry.setModels(tenant, { aliases: { fast: "other" } })
      yield* becomes("other:latest")
      yield* registry.setModels(tenant, { removeAliases: ["fast"] })
      yield* becomes(403)
    }).pipe(Effect.scoped)
  )
})
