/** docs/hardening.md, B11 to B22: fields. The backend gets only the fields on which the gateway decided. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { call, Fake, Gateway, hello, installed, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawPost, talk } from "../../support/RawClient.ts"
import { ask, refused, sent } from "./asking.ts"
import { assertAudited, assertRefusal, unharmed } from "./checks.ts"

const live = { excludeTestServices: true } as const

const plain = hello({ stream: false })

layer(layerGateway(), live)("a request's fields", (it) => {
  it.effect(
    "when a model is shown, then under the one name that was decided on, without its secrets (B11)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey({ models: ["m"] })
        const path = "/api/show"
        for (const body of ['{"model":"m","name":"other","verbose":true}', '{"name":"m","Model":"other"}']) {
          const { raw } = yield* sent(secret, body, path)
          assert.strictEqual(raw, '{"model":"m:latest"}')
        }
        const response = yield* ask(secret, '{"model":"m"}', { path })
        const shown = JSON.parse(response?.body ?? "")
        for (const key of ["system", "template", "modelfile", "messages", "remote_host", "remote_model"]) {
          assert.notProperty(shown, key)
        }
        const other = yield* ask(secret, '{"name":"other"}', { path }).pipe(unharmed)
        yield* assertAudited(assertRefusal(other, 403, "other"), 403)
        yield* refused(secret, ['{"model":"m","model":"other"}', '{"model":1}', "{}", '{"name":[]}'], path)
      })
  )

  it.effect(
    "when a model's name is no string of at most 256 characters, then it is a 400, and any string is refused without damage (B12)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        const asking = (model: unknown) => JSON.stringify(hello({ stream: false, model }))
        const long = "x".repeat(257)
        yield* refused(secret, [1, null, [], {}, "", true, ["m"], long, "x".repeat(200_000)].map(asking))
        yield* Effect.gen(function* () {
          const bodies = new Set<string>()
          for (const [name, stored] of [
            ["a\u0000b", "ab"],
            ["a\nb\u001b[31m", "ab[31m"],
            ["m\u200b", "m\u200b"],
            ["\u202em", "m"],
            ["м", "м"],
            ["ｍ", "ｍ"],
            ["e\u0301", "e\u0301"],
            ["x".repeat(256), "x".repeat(128)],
            ["'; DROP TABLE audit_log; --", "'; DROP TABLE audit_log; --"]
          ] as const) {
            const response = yield* ask(secret, asking(name))
            const id = assertRefusal(response, 403, name.slice(0, 20))
            bodies.add((response?.body ?? "").replaceAll(id, ""))
            const row = yield* assertAudited(id, 403)
            assert.strictEqual(row?.model, stored)
          }
          // Half a character: JSON can say it, Postgres cannot store it.
          const lone = yield* ask(secret, asking("X").replace('"X"', String.raw`"\ud800"`))
          const row = yield* assertAudited(assertRefusal(lone, 403, "lone surrogate"), 403)
          assert.strictEqual(row?.model, "\ufffd")
          assert.strictEqual(bodies.size, 1, "refusals differ")
        }).pipe(unharmed)
      })
  )

  it.effect("when a model is named, then by its discovered name, or that without its :latest (B13)", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      for (const name of ["m", "m:latest"]) {
        const { body } = yield* sent(secret, hello({ stream: false, model: name }))
        assert.strictEqual(body["model"], "m:latest")
      }
      yield* Effect.gen(function* () {
        for (const name of [
          "M",
          "M:latest",
          "m:LATEST",
          "library/m",
          "library/m:latest",
          "registry.ollama.ai/library/m:latest",
          "https://registry.ollama.ai/library/m",
          " m",
          "m ",
          "m:",
          ":latest",
          "m:latest:latest",
          "m@sha256-00",
          "m:cloud",
          "m-cloud",
          "./m",
          "../m",
          "m/",
          "m\\",
          "m%00",
          "m#"
        ]) {
          const response = yield* ask(secret, JSON.stringify(hello({ stream: false, model: name })))
          assertRefusal(response, 403, name)
        }
      }).pipe(unharmed)
    })
  )

  it.effect("when models live elsewhere, then no tenant has them, not even one with all models (B14)", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey()
      const entry = (name: string, more: JsonObject) => ({ ...tagsEntry(name, ["completion"]), ...more })
      backend.setModels([
        ...installed,
        entry("hosted:latest", { remote_host: "https://ollama.com:443" }),
        entry("aliased:latest", { remote_model: "gpt" }),
        "gpt-oss:120b-cloud",
        "kimi:cloud"
      ])
      yield* Effect.addFinalizer(() => Effect.sync(() => backend.setModels(installed)))
      // Two refreshes: the list is the new one by then.
      const before = backend.lookups.length
      yield* backend.until(() => backend.lookups.length >= before + 2)
      const listed = yield* call("/api/tags", { secret })
      for (const name of ["hosted:latest", "aliased", "gpt-oss:120b-cloud", "kimi:cloud"]) {
        assert.notInclude(listed.text, name)
        const response = yield* ask(secret, JSON.stringify(hello({ stream: false, model: name }))).pipe(
          unharmed
        )
        assertRefusal(response, 403, name)
      }
    }).pipe(Effect.scoped)
  )

  it.effect(
    "when a client tries to load, unload or reshape a model, then it cannot, and options have their types (B15 B16)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        for (const keep_alive of [0, -1, "9999h", "0s"]) {
          const { body } = yield* sent(secret, hello({ stream: false, keep_alive }))
          assert.isUndefined(body["keep_alive"])
        }
        const pinning = {
          num_ctx: 1e9,
          num_gpu: 99,
          num_thread: 10_000,
          num_batch: 1,
          use_mmap: false,
          main_gpu: 3,
          num_keep: 5,
          seed: 7,
          temperature: 0.5,
          unheard_of: { a: 1 },
          low_vram: true,
          numa: true
        }
        const { body } = yield* sent(secret, hello({ stream: false, options: pinning }))
        assert.deepStrictEqual(body["options"], {
          num_keep: 5,
          seed: 7,
          temperature: 0.5,
          num_predict: 65_536
        })
        const bad = [
          { seed: "x" },
          { seed: 1e19 },
          { repeat_last_n: 1_500_000_000 },
          { frequency_penalty: -1e38 },
          { temperature: "1" },
          { top_k: [] },
          { num_ctx: "1" },
          { num_predict: 65_537 },
          { num_predict: 0 },
          { num_predict: 1.5 },
          { num_predict: "1" },
          { stop: Array.from({ length: 1000 }, () => "x") },
          { stop: "x" },
          { stop: [1] },
          []
        ]
        yield* refused(
          secret,
          bad.map((options) => JSON.stringify(hello({ stream: false, options })))
        )
        const negative = yield* sent(secret, hello({ stream: false, options: { num_predict: -1 } }))
        assert.deepStrictEqual(negative.body["options"], { num_predict: 65_536 })
      })
  )

  it.effect(
    "when a field is given, then it passes, is dropped or is refused as the contract says (B17)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        const asking = (more: JsonObject) => ({ model: "m", prompt: "p", stream: false, ...more })
        const kept = { system: "s", suffix: "x", format: { type: "object" } }
        const { body } = yield* sent(secret, asking(kept), "/api/generate")
        assert.deepInclude(body, kept)
        const dropped = { template: "", shift: true, _debug_render_only: true, keep_alive: -1, unheard_of: 1 }
        const without = yield* sent(secret, asking(dropped), "/api/generate")
        for (const key of Object.keys(dropped)) assert.isUndefined(without.body[key], key)
        yield* refused(
          secret,
          [
            { template: "{{ .System }}" },
            { raw: "yes" },
            { context: ["a"] },
            { context: [-1] },
            { context: [1, 2, 3] },
            { context: [99_999_999] },
            { images: ["http://evil/"] },
            { images: "aGk=" },
            { format: 5 },
            { think: "much" },
            { top_logprobs: 1e9 },
            { logprobs: 1 },
            { system: {} },
            { prompt: [] }
          ].map((more) => JSON.stringify(asking(more))),
          "/api/generate"
        )
      })
  )

  it.effect(
    "when stream is given, then it is a boolean; when absent, then it is true on /api and false on /v1 (B18)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        const asking = (stream: unknown) => JSON.stringify(hello({ stream }))
        for (const path of ["/api/chat", "/v1/chat/completions"]) {
          yield* refused(secret, ["false", 1, 0, {}, []].map(asking), path)
        }
        const types = new Map([
          ["/api/chat", "application/x-ndjson"],
          ["/v1/chat/completions", "application/json"]
        ])
        for (const [path, type] of types) {
          for (const stream of [undefined, null]) {
            const response = yield* ask(secret, asking(stream), { path })
            assert.strictEqual(response?.status, 200, response?.text)
            assert.include(response?.headers.get("content-type"), type)
          }
        }
      })
  )

  it.effect("when messages are given, then each is a message, however many there are (B19)", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const asking = (messages: unknown) => JSON.stringify({ model: "m", stream: false, messages })
      yield* refused(secret, [
        asking(Array.from({ length: 80_000 }, () => ({}))),
        asking([{ role: "r".repeat(65), content: "x" }]),
        asking([{ role: "user", content: [{ type: "text", text: "parts are the other surface's" }] }]),
        asking([{ role: "user", content: 5 }]),
        asking(["x"]),
        asking({ role: "user" })
      ])
      const many = Array.from({ length: 6000 }, () => ({ role: "user", content: "x" }))
      assert.strictEqual((yield* ask(secret, asking(many)))?.status, 200)
      // On the native surface a request without messages loads the model; on /v1 it is an error.
      yield* refused(secret, [asking([])], "/v1/chat/completions")
    })
  )

  it.effect("when it is answered, then Content-Type says once that it is JSON in UTF-8 (B21)", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      const body = JSON.stringify(plain)
      yield* Effect.gen(function* () {
        for (const type of [
          "text/plain",
          "application/json; charset=utf-16",
          "multipart/form-data; boundary=x",
          "*/*",
          "json",
          "application/x-www-form-urlencoded; boundary=x",
          "application/json, text/plain",
          "application/jsonp",
          "application/json; charset=utf-8; charset=utf-16",
          "application/json; x=y"
        ]) {
          assertRefusal(yield* ask(secret, body, { headers: [`Content-Type: ${type}`] }), 400, type)
        }
        const twice = ["Content-Type: application/json", "Content-Type: text/plain"]
        assertRefusal(yield* ask(secret, body, { headers: twice }), 400, "two of them")
        const untyped = (text: string) =>
          rawPost("/api/chat", secret, text)
            .toString()
            .replace(/Content-Type.*\r\n/, "")
        const { responses } = yield* talk(url, untyped("model=m"), { answers: 1 })
        assertRefusal(responses[0], 400, "no type, and no JSON")
      }).pipe(unharmed)
      for (const type of [
        "APPLICATION/JSON",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"'
      ]) {
        const response = yield* ask(secret, body, { headers: [`Content-Type: ${type}`] })
        assert.strictEqual(response?.status, 200, type)
      }
      // LiteLLM's Ollama clients say nothing.
      const untyped = rawPost("/api/chat", secret, body)
        .toString()
        .replace(/Content-Type.*\r\n/, "")
      const { responses } = yield* talk(url, untyped, { answers: 1 })
      assert.strictEqual(responses[0]?.status, 200, "none")
    })
  )

  it.effect(
    "when more than one answer is asked for on /v1, then it is refused, and no field leads to another address (B22)",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey()
        const asking = (more: JsonObject) => JSON.stringify(hello(more))
        yield* refused(secret, [{ n: 100 }, { n: 0 }, { n: "1" }].map(asking), "/v1/chat/completions")
        yield* refused(
          secret,
          [{ best_of: 2 }, { n: 2 }].map((more) => JSON.stringify({ model: "m", prompt: "p", ...more })),
          "/v1/completions"
        )
        const routing = {
          api_base: "http://evil/",
          base_url: "http://evil/",
          api_key: "x",
          user: "u",
          n: 1,
          extra_body: { model: "other" },
          extra_headers: { host: "evil" },
          stream_options: { include_usage: true }
        }
        const { raw, body } = yield* sent(secret, hello(routing), "/v1/chat/completions")
        assert.notInclude(raw, "evil")
        assert.strictEqual(body["model"], "m:latest")
        assert.deepStrictEqual(Object.keys(body).sort(), ["messages", "model", "options", "stream"])
      })
  )
})
