// A client of these tests leaves by its own AbortController.
// @effect-diagnostics abortControllerInEffect:off
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import { auditRow, call, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawRequest, sendRaw } from "../../support/RawClient.ts"
import { ask, assertWell, install, json, live, user } from "./asking.ts"

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

layer(layerGateway(), live)("models", (it) => {
  it.effect(
    "when a model is forbidden, missing or unknown, then the answer is the same on every endpoint, without a backend call",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey({ models: ["m", "granted-but-not-installed"] })
        const seen = new Map<string, string>()
        for (const model of [
          "other",
          "other:latest",
          "granted-but-not-installed",
          "no-such-model",
          "m:cloud"
        ]) {
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
        assert.include(
          [...seen.keys()][0],
          `{\\"error\\":{\\"message\\":\\"forbidden\\",\\"type\\":\\"forbidden\\",\\"code\\":403}`
        )
      })
  )

  it.effect(
    "when a model is gone when the backend is asked, then the answer is as for one that never was, on every endpoint",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const { secret } = yield* newKey()
        for (const [path, body] of modelEndpoints("m")) {
          backend.script({ does: "answer", status: 404, body: `{"error":"model 'SECRET' not found"}` })
          const answer = yield* ask(path, body, { secret })
          assert.strictEqual(answer.status, 403, path)
          assert.deepStrictEqual(
            json(answer).error,
            { message: "forbidden", type: "forbidden", code: 403 },
            path
          )
        }
      })
  )

  it.effect("when a model is shown, then the backend gets its name alone, under either of its names", () =>
    Effect.gen(function* () {
      const bodies = [
        { name: "m" },
        { model: "m" },
        { model: "", name: "m:latest" },
        { model: "m", verbose: true, system: "x", template: "y", options: { num_ctx: 1 } }
      ]
      for (const body of bodies) {
        const answer = yield* ask("/api/show", body)
        assertWell(answer)
        assert.deepStrictEqual(answer.sent, { model: "m:latest" })
      }
      const none = yield* ask("/api/show", { verbose: true })
      assert.strictEqual(none.status, 400)
    })
  )

  it.effect("when a model is shown, then the answer has the fields of the list and no others", () =>
    Effect.gen(function* () {
      const answer = yield* ask("/api/show", { model: "m" })
      assert.strictEqual(answer.contentType, "application/json; charset=utf-8")
      assert.notInclude(answer.text, "SECRET")
      const shown = json(answer)
      assert.sameMembers(Object.keys(shown), [
        "license",
        "parameters",
        "modified_at",
        "details",
        "model_info",
        "projector_info",
        "tensors",
        "capabilities"
      ])
      assert.strictEqual(shown.details.parent_model, "")
      assert.deepStrictEqual(shown.model_info, {
        "general.architecture": "llama",
        "llama.context_length": 8192,
        nested: { deep: [{ kept: 1 }] }
      })
      assert.deepStrictEqual(shown.projector_info, { "general.architecture": "clip" })
    })
  )

  it.effect("when the backend leaves out what clients index, then it is there all the same", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      for (const body of [
        `{}`,
        `{"model_info":null,"capabilities":null,"details":null}`,
        `{"details":"x","license":5}`
      ]) {
        backend.script({ does: "answer", status: 200, body })
        const shown = json(yield* ask("/api/show", { model: "m" }))
        assert.deepStrictEqual(shown.model_info, {}, body)
        assert.deepStrictEqual(shown.capabilities, [], body)
        assert.strictEqual(shown.details.parent_model, "", body)
      }
      backend.script({ does: "answer", status: 200, body: "[]" })
      assert.strictEqual((yield* ask("/api/show", { model: "m" })).status, 502)
    })
  )

  it.effect(
    "when a field is private, then it is removed whole, and a licence that quotes the system prompt stays a licence",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const body = JSON.stringify({
          system: "be kind",
          license: "says: be kind",
          parameters: `stop "be kind"`
        })
        backend.script({ does: "answer", status: 200, body })
        const shown = json(yield* ask("/api/show", { model: "m" }))
        assert.notProperty(shown, "system")
        assert.deepInclude(shown, { license: "says: be kind", parameters: `stop "be kind"` })
      })
  )

  it.effect(
    "when a model is shown, then it needs no scope, counts a request, no tokens and no slot, and its intent comes before the call",
    () =>
      Effect.gen(function* () {
        const [backend, sql] = [yield* Fake, yield* SqlClient.SqlClient]
        const { secret, prefix } = yield* newKey({ scopes: ["embeddings"], rpm: 5, concurrent: 1 })
        backend.script({ does: "hang" })
        const calls = backend.requests.length
        const { url } = yield* Gateway
        const leave = new AbortController()
        const hanging = fetch(new URL("/api/embed", url), {
          method: "POST",
          signal: leave.signal,
          headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "embedder", input: "a" })
        }).catch(() => undefined)
        yield* backend.until(() => backend.requests.length > calls)
        assert.lengthOf(yield* sql`SELECT 1 FROM intents WHERE key_prefix = ${prefix}`, 1)
        // The only slot is taken, and show does not ask for one.
        const answer = yield* ask("/api/show", { model: "m" }, { secret })
        assertWell(answer)
        assert.strictEqual(answer.headers.get("x-ratelimit-remaining-requests"), "3")
        assert.deepInclude(yield* auditRow(answer.headers.get("x-request-id")), {
          status: 200,
          tokens_in: 0n,
          tokens_out: 0n,
          model: "m:latest"
        })
        leave.abort()
        yield* Effect.promise(() => hanging)
      })
  )

  it.effect("when a key may use no model, then its list is empty and never null", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey({ models: [] })
      assert.strictEqual((yield* call("/api/tags", { secret })).text, `{"models":[]}`)
      assert.strictEqual((yield* call("/v1/models", { secret })).text, `{"object":"list","data":[]}`)
    })
  )

  it.effect("when the backend lists remote models and cloud names, then nobody gets them", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const entry = (name: string) => tagsEntry(name, ["completion"])
      yield* install(
        [{ name: "new:latest", capabilities: ["completion"] }],
        [
          { ...entry("far:latest"), remote_host: "https://SECRET.example" },
          { ...entry("farther:latest"), remote_model: "SECRET" },
          entry("big:cloud"),
          entry("big:480b-cloud")
        ]
      )
      const { secret } = yield* newKey()
      for (const path of ["/api/tags", "/v1/models"]) {
        const list = yield* call(path, { secret })
        assert.include(list.text, "new:latest")
        assert.notMatch(list.text, /SECRET|far|cloud|remote/)
      }
      const before = backend.requests.length
      for (const model of ["far", "farther:latest", "big:cloud", "big:480b-cloud"]) {
        assert.strictEqual((yield* ask("/api/show", { model }, { secret })).status, 403, model)
      }
      assert.strictEqual(backend.requests.length, before)
    })
  )

  it.effect(
    "when a path is blocked, then it is blocked for every method and spelling, with a key and without",
    () =>
      Effect.gen(function* () {
        const [backend, { url }] = [yield* Fake, yield* Gateway]
        const { secret } = yield* newKey()
        const before = backend.requests.length
        const paths = ["pull", "push", "create", "copy", "delete", "blobs/sha256:0", "ps"].flatMap((name) => [
          `/api/${name}`,
          `/api/${name}/`,
          `/api//${name}`,
          `/api/chat/../${name}`,
          `/api/%${name.charCodeAt(0).toString(16)}${name.slice(1)}`,
          `/API/${name.toUpperCase()}`
        ])
        for (const target of [
          ...paths,
          "/",
          "/api/me",
          "/v1/responses",
          "/v1/models/m",
          "/api/show/",
          "/v1/embeddings/"
        ]) {
          for (const method of ["GET", "POST", "DELETE", "OPTIONS"]) {
            for (const auth of [[], [`Authorization: Bearer ${secret}`]]) {
              const answer = yield* sendRaw(url, rawRequest(method, target, [...auth, "Content-Length: 0"]))
              assert.strictEqual(answer.status, 403, `${method} ${target}`)
            }
          }
        }
        assert.strictEqual(backend.requests.length, before)
      })
  )

  it.effect(
    "when a list is asked for with HEAD, then it answers a key; OPTIONS is blocked; neither reaches the backend",
    () =>
      Effect.gen(function* () {
        const [backend, { url }] = [yield* Fake, yield* Gateway]
        const { secret } = yield* newKey()
        const before = backend.requests.length
        for (const path of ["/api/tags", "/api/version", "/v1/models"]) {
          const head = yield* sendRaw(
            url,
            rawRequest("HEAD", path, [`Authorization: Bearer ${secret}`]),
            2000
          )
          assert.strictEqual(head.status, 200, path)
          assert.strictEqual(head.body, "", path)
          assert.isDefined(head.headers.get("x-ratelimit-limit-requests"), path)
          assert.strictEqual((yield* sendRaw(url, rawRequest("HEAD", path), 2000)).status, 401, path)
          const options = yield* sendRaw(
            url,
            rawRequest("OPTIONS", path, [`Authorization: Bearer ${secret}`])
          )
          assert.strictEqual(options.status, 403, path)
          assert.isUndefined(options.headers.get("access-control-allow-origin"))
        }
        assert.strictEqual(backend.requests.length, before)
      })
  )
})
