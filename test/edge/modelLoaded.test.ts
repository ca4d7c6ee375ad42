/** `X-Model-Loaded`, and the load in the audit row, before a server that holds one model. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey, rowOf } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

const header = "x-model-loaded"

/** A server that loads a model for 400 ms when it answered with another one before. */
const holdsOne = Effect.gen(function* () {
  const backend = yield* Fake
  backend.setModels(["a:latest", "b:latest", "first:latest"])
  let loaded = ""
  backend.always(({ body, path }) => {
    const model = String(body?.["model"])
    const loads = model !== loaded
    loaded = model
    const more = { load_duration: loads ? 400_000_000 : 1_000_000 }
    if (path === "/api/show") return { does: "answer", status: 200, body: '{"details":{},"model_info":{}}' }
    return path === "/api/embed"
      ? {
          does: "answer",
          status: 200,
          body: JSON.stringify({ embeddings: [[1]], prompt_eval_count: 1, ...more })
        }
      : { does: "stream", lines: [wire.chat("Hi"), wire.done("chat", { eval_count: 1, ...more })] }
  })
  const { secret } = yield* newKey()
  yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes('"b:latest"'))
  return secret
})

const surfaces = [
  { path: "/api/chat", body: hello({ stream: false }) },
  { path: "/api/chat", body: hello() },
  { path: "/v1/chat/completions", body: hello() },
  { path: "/v1/chat/completions", body: hello({ stream: true }) },
  { path: "/api/embed", body: { input: "Hello" } },
  { path: "/v1/embeddings", body: { input: "Hello" } }
]

inWorld(layerGateway({ BACKEND_MAX_CONCURRENT: "2", BACKEND_MAX_LOADED_MODELS: "1" }))(
  "with a queue before a server that holds one model",
  (test) => {
    test("when requests for two models alternate, then X-Model-Loaded says of each whether its model was loaded, on both surfaces, and its row how long that took", function* () {
      const secret = yield* holdsOne
      // The store is new: the first request waits until every replica could have named its own.
      yield* call("/api/chat", { secret, body: hello({ model: "first" }) })
      for (const { body, path } of surfaces)
        for (const [model, loaded] of [
          ["a", "false"],
          ["a", "true"],
          ["b", "false"]
        ] as const) {
          const answer = yield* call(path, { secret, body: { ...body, model } })
          assert.strictEqual(answer.status, 200, answer.text)
          assert.strictEqual(answer.headers.get(header), loaded, `${path} ${model}`)
          const loadMs = (yield* rowOf(answer))?.load_ms
          assert.strictEqual(loadMs, loaded === "false" ? 400 : null, `${path} ${model}`)
        }
      for (const [path, body] of [
        ["/api/show", { model: "a" }],
        ["/api/tags", undefined],
        ["/v1/models", undefined]
      ] as const) {
        const { headers, status } = yield* call(path, { secret, ...(body === undefined ? {} : { body }) })
        assert.deepStrictEqual([status, headers.get(header)], [200, null], path)
      }
      const { headers, status } = yield* call("/api/chat", { secret, body: hello({ model: "none" }) })
      assert.deepStrictEqual([status, headers.get(header)], [403, null])
    })
  }
)

inWorld(layerGateway())("without a queue", (test) => {
  test("when a request had to wait for its model, then its row says so, and there is no X-Model-Loaded", function* () {
    const secret = yield* holdsOne
    const loads: Array<number | null | undefined> = []
    for (const { body, path } of surfaces.slice(0, 4)) {
      const answer = yield* call(path, { secret, body: { ...body, model: "a" } })
      assert.deepStrictEqual([answer.status, answer.headers.get(header)], [200, null], path)
      loads.push((yield* rowOf(answer))?.load_ms)
    }
    assert.deepStrictEqual(loads, [400, null, null, null])
  })
})
