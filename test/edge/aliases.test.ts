import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, layerGateway, newKey, rowOf } from "../support/Gateway.ts"
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

  test("when an alias has defaults, then requests on every surface have them, but for what they say themselves", function* () {
    const [backend, { secret, tenant }] = [yield* Fake, yield* aliasedKey()]
    const registry = yield* Registry
    const aliases = { fast: "m:latest" }
    yield* registry.setModels(tenant, {
      aliases,
      aliasDefaults: { num_ctx: 8192, think: "off", system: "Be brief." }
    })
    yield* eventually(call("/v1/models", { secret }), ({ text }) =>
      /"id":"fast"[^}]*"context_length":8192/.test(text)
    )
    const sent = Effect.fnUntraced(function* (path: string, body: object) {
      const before = backend.requests.length
      assert.strictEqual((yield* call(path, { secret, body })).status, 200, path)
      return backend.requests[before]?.body ?? {}
    })
    const system = { role: "system", content: "Be brief." }
    for (const [path, body] of endpoints.slice(0, 5)) {
      const got = yield* sent(path, body)
      if (path === "/api/show") continue
      assert.deepInclude(got["options"], { num_ctx: 8192 }, path)
      assert.strictEqual(got["think"], false, path)
      if (got["messages"] === undefined) assert.strictEqual(got["system"], "Be brief.", path)
      else assert.deepStrictEqual(got["messages"], [system, ...messages], path)
    }
    const own = [{ role: "developer", content: "Be long." }, ...messages]
    const said = yield* sent("/v1/chat/completions", {
      model: "fast",
      messages: own,
      reasoning_effort: "high"
    })
    assert.deepStrictEqual(said["messages"], [{ role: "system", content: "Be long." }, ...messages])
    assert.strictEqual(said["think"], "high")
    // The model under its own name has none.
    const plain = yield* sent("/api/chat", { model: "m", messages, stream: false })
    assert.deepStrictEqual([plain["messages"], plain["think"]], [messages, undefined])
  })
})
