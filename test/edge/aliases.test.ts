import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { call, Fake, layerGateway, newKey, rowOf } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

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

const Answered = Schema.fromJsonString(Schema.Struct({ model: Schema.optionalKey(Schema.String) }))

inWorld(layerGateway())("aliases", (test) => {
  test("when a request names an alias, then its model answers under the alias, and the audit has both names", function* () {
    const [backend, { secret }] = [yield* Fake, yield* aliasedKey()]
    for (const [path, body, model] of endpoints) {
      const before = backend.requests.length
      const answer = yield* call(path, { secret, body })
      assert.strictEqual(answer.status, 200, path)
      assert.strictEqual(backend.requests[before]?.body?.["model"], model, path)
      assert.strictEqual(backend.requests.length, before + 1, path)
      const answered = yield* Schema.decodeEffect(Answered)(answer.text)
      if (answered.model !== undefined) assert.strictEqual(answered.model, body.model, path)
      assert.deepInclude(yield* rowOf(answer), {
        model,
        alias: body.model.replace(":latest", ""),
        status: 200
      })
    }
    assert.notInclude((yield* call("/metrics")).text, "fast")
  })
})
