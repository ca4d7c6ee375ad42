// A client of these tests leaves by its own AbortController.
// @effect-diagnostics abortControllerInEffect:off
import { assert } from "@effect/vitest"
import { call, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawRequest, sendRaw } from "../../support/RawClient.ts"
import { ask, json, user } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

/** Every endpoint that takes a model's name. */
const modelEndpoints = (model: string) =>
  [
    ["/api/chat", { model, messages: [user("hi")] }],
    ["/api/generate", { model, prompt: "hi" }],
    ["/api/embed", { model, input: "hi" }],
    ["/api/embeddings", { model, prompt: "hi" }],
    ["/api/show", { model }],
    ["/v1/chat/completions", { model, messages: [user("hi")] }],
    ["/v1/completions", { model, prompt: "hi" }],
    ["/v1/embeddings", { model, input: "hi" }]
  ] as const

inWorld(layerGateway())("models", (test) => {
  test("when a model is forbidden, missing or unknown, then the answer is the same on every endpoint, without a backend call", function* () {
    const { secret } = yield* newKey({ models: ["m", "granted-but-not-installed"] })
    const seen = new Map<string, string>()
    for (const model of ["other", "other:latest", "granted-but-not-installed", "no-such-model", "m:cloud"]) {
      for (const [path, body] of modelEndpoints(model)) {
        const answer = yield* ask(path, body, { secret })
        assert.strictEqual(answer.status, 403, `${path} ${model}`)
        assert.lengthOf(answer.calls, 0, `${path} ${model}`)
        const id = json(answer).request_id
        assert.strictEqual(answer.headers.get("x-request-id"), id)
        const headers = [...answer.headers].filter(([name]) => name !== "date" && name !== "x-request-id")
        seen.set(JSON.stringify([answer.text.replace(id, "ID"), headers]), `${path} ${model}`)
      }
    }
    assert.deepStrictEqual([...seen.values()].length, 1, [...seen.entries()].join("\n"))
    assert.include([...seen.keys()][0], "not one of this key's models; GET /v1/models lists them")
    assert.include(
      [...seen.keys()][0],
      `{\\"error\\":{\\"message\\":\\"forbidden\\",\\"type\\":\\"forbidden\\",\\"code\\":403}`
    )
  })

  test("when a key may use no model, then its list is empty and never null", function* () {
    const { secret } = yield* newKey({ models: [] })
    assert.strictEqual((yield* call("/api/tags", { secret })).text, `{"models":[]}`)
    assert.strictEqual((yield* call("/v1/models", { secret })).text, `{"object":"list","data":[]}`)
  })

  test("when a list is asked for with HEAD, then it answers a key; OPTIONS is blocked; neither reaches the backend", function* () {
    const [backend, { url }] = [yield* Fake, yield* Gateway]
    const { secret } = yield* newKey()
    const before = backend.requests.length
    for (const path of ["/api/tags", "/api/version", "/v1/models"]) {
      const head = yield* sendRaw(url, rawRequest("HEAD", path, [`Authorization: Bearer ${secret}`]))
      assert.strictEqual(head.status, 200, path)
      assert.strictEqual(head.body, "", path)
      assert.isDefined(head.headers.get("x-ratelimit-limit-requests"), path)
      assert.strictEqual((yield* sendRaw(url, rawRequest("HEAD", path))).status, 401, path)
      const options = yield* sendRaw(url, rawRequest("OPTIONS", path, [`Authorization: Bearer ${secret}`]))
      assert.strictEqual(options.status, 403, path)
      assert.isUndefined(options.headers.get("access-control-allow-origin"))
    }
    assert.strictEqual(backend.requests.length, before)
  })
})
