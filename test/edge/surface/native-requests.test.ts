import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { auditRow, call, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { rawRequest, sendRaw } from "../../support/RawClient.ts"
import { Gateway } from "../../support/Gateway.ts"
import {
  ask,
  assertRefused,
  assertWell,
  chat,
  generate,
  install,
  json,
  lines,
  live,
  user,
  whole
} from "./asking.ts"

const cap = 65_536

layer(layerGateway(), live)("native requests", (it) => {
  it.effect("when a second model differs by case only, then it is not the one that runs", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey({ models: ["m"] })
      for (const key of ["MODEL", "Model", "mode\u017f", "MoDeL"]) {
        const answer = yield* ask("/api/chat", whole({ [key]: "other" }), { secret })
        assertWell(answer, key)
        assert.strictEqual(answer.sent?.["model"], "m:latest", key)
        assert.notInclude(answer.calls[0]?.raw ?? "", "other", key)
      }
    })
  )

  it.effect("when a name differs from the model's by case only, then it names no model", () =>
    Effect.gen(function* () {
      for (const path of ["/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"]) {
        assertRefused(
          yield* ask(path, { Model: "m", messages: [], prompt: "", input: "" }),
          "model: missing",
          path
        )
      }
    })
  )

  it.effect("when a body is no JSON object, then it is a 400 of the usual shape, on every endpoint", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      for (const path of ["/api/chat", "/api/embed", "/api/show", "/v1/chat/completions", "/v1/embeddings"]) {
        for (const body of [
          "null",
          "[]",
          '"x"',
          "{",
          '{"model":"m",}',
          '{"model":"m"} x',
          "1",
          '{"model":"m"}{}'
        ]) {
          assertRefused(yield* ask(path, body, { secret }), "", `${path} ${body}`)
        }
        const { url } = yield* Gateway
        const empty = yield* sendRaw(
          url,
          rawRequest("POST", path, [
            `Authorization: Bearer ${secret}`,
            "Content-Type: application/json",
            "Content-Length: 0"
          ])
        )
        assert.strictEqual(empty.status, 400)
        assert.strictEqual(JSON.parse(empty.body).error.message, "body: missing")
      }
    })
  )

  it.effect("when stream is absent or null, then it streams; false gives one object, a string is a 400", () =>
    Effect.gen(function* () {
      for (const body of [chat(), chat({ stream: null }), chat({ stream: true })]) {
        const answer = yield* ask("/api/chat", body)
        assert.strictEqual(answer.contentType, "application/x-ndjson")
        assert.lengthOf(lines(answer), 4)
      }
      const one = yield* ask("/api/chat", whole())
      assert.strictEqual(one.contentType, "application/json; charset=utf-8")
      assert.deepInclude(json(one), { done: true, done_reason: "stop", eval_count: 3 })
      assert.strictEqual(json(one).message.content, "Hello world!")
      assert.isFalse(one.text.endsWith("\n"))
      assertRefused(yield* ask("/api/chat", chat({ stream: "true" })), "stream: expected")
      const generated = yield* ask("/api/generate", generate())
      assert.strictEqual(
        lines(generated)
          .map(({ response }) => response)
          .join(""),
        "Hello world!"
      )
    })
  )

  it.effect("when content is a list of parts, then it is a 400", () =>
    Effect.gen(function* () {
      const answer = yield* ask("/api/chat", { model: "m", messages: [user([{ type: "text", text: "hi" }])] })
      assertRefused(answer, "messages.0.content: expected")
    })
  )

  it.effect("when an assistant's message has calls and no content, then it is accepted", () =>
    Effect.gen(function* () {
      const call = { function: { name: "f", arguments: { a: 1 } } }
      const answer = yield* ask(
        "/api/chat",
        whole({ messages: [user("hi"), { role: "assistant", content: null, tool_calls: [call] }] })
      )
      assertWell(answer)
      assert.deepStrictEqual(answer.sent?.["messages"], [
        user("hi"),
        { role: "assistant", content: "", tool_calls: [call] }
      ])
    })
  )

  it.effect(
    "when a call is sent, then it has a bound: above the cap it is a 400, none or a negative one sends the cap",
    () =>
      Effect.gen(function* () {
        for (const [path, body] of [
          ["/api/chat", whole],
          ["/api/generate", (more: object) => generate({ stream: false, ...more })]
        ] as const) {
          for (const [given, sent] of [
            [cap, cap],
            [1, 1],
            [-1, cap],
            [-2, cap],
            [null, cap]
          ] as const) {
            const answer = yield* ask(path, body({ options: { num_predict: given } }))
            assertWell(answer)
            assert.deepInclude(answer.sent?.["options"], { num_predict: sent })
          }
          assert.deepInclude((yield* ask(path, body({}))).sent?.["options"], { num_predict: cap })
          assertRefused(
            yield* ask(path, body({ options: { num_predict: cap + 1 } })),
            "options.num_predict: expected"
          )
          assertRefused(
            yield* ask(path, body({ options: { num_predict: 0 } })),
            "options.num_predict: expected"
          )
        }
        for (const [path, input] of [
          ["/api/embed", { input: "a" }],
          ["/api/embeddings", { prompt: "a" }]
        ] as const) {
          const body = { model: "embedder", ...input, options: { num_predict: cap + 1 } }
          assertRefused(yield* ask(path, body), "options.num_predict: expected")
        }
      })
  )

  it.effect("when an option has the wrong type, then it is our 400 and not the backend's 500", () =>
    Effect.gen(function* () {
      const wrong = [
        { num_predict: "10" },
        { stop: "x" },
        { temperature: "hot" },
        { seed: 1e19 },
        { repeat_last_n: 1_500_000_000 },
        { repeat_penalty: -1e38 },
        { stop: [1] }
      ]
      for (const options of wrong) {
        const name = Object.keys(options)[0] ?? ""
        for (const path of ["/api/chat", "/api/generate"]) {
          assertRefused(yield* ask(path, { ...chat(), prompt: "x", options }), `options.${name}`)
        }
        assertRefused(yield* ask("/api/embed", { model: "embedder", input: "x", options }), `options.${name}`)
      }
    })
  )

  it.effect("when a field would reload the model for everybody, then it is left out silently", () =>
    Effect.gen(function* () {
      const options = {
        num_ctx: 1_000_000,
        num_gpu: 0,
        num_thread: 64,
        num_batch: 1,
        main_gpu: 1,
        use_mmap: false
      }
      const answer = yield* ask("/api/chat", whole({ options: { ...options, top_k: 5 }, shift: false }))
      assertWell(answer)
      assert.deepStrictEqual(answer.sent?.["options"], { top_k: 5, num_predict: cap })
      assert.notProperty(answer.sent, "shift")
    })
  )

  it.effect("when keep_alive is given, then it does not reach the backend", () =>
    Effect.gen(function* () {
      for (const keep_alive of [-1, 0, "24h", null]) {
        for (const [path, body] of [
          ["/api/chat", whole()],
          ["/api/generate", generate({ stream: false })],
          ["/api/embed", { model: "embedder", input: "a" }],
          ["/api/embeddings", { model: "embedder", prompt: "a" }],
          ["/api/show", { model: "m" }]
        ] as const) {
          const answer = yield* ask(path, { ...body, keep_alive })
          assertWell(answer, path)
          assert.notInclude(answer.calls[0]?.raw ?? "", "keep_alive", path)
        }
      }
    })
  )

  it.effect(
    "when _debug_render_only is given, then it does not reach the backend, and the answer is a normal one",
    () =>
      Effect.gen(function* () {
        for (const [path, body] of [
          ["/api/chat", whole()],
          ["/api/generate", generate({ stream: false })],
          ["/v1/chat/completions", chat()],
          ["/v1/completions", generate()]
        ] as const) {
          const answer = yield* ask(path, { ...body, _debug_render_only: true })
          assertWell(answer, path)
          assert.include(answer.text, "Hello world!")
          assert.notInclude(answer.calls[0]?.raw ?? "", "_debug", path)
        }
      })
  )

  it.effect(
    "when there are no messages, then the model is loaded: one object whatever stream says, no tokens, one request",
    () =>
      Effect.gen(function* () {
        const { secret } = yield* newKey({ rpm: 10 })
        for (const body of [
          { model: "m" },
          { model: "m", messages: [] },
          { model: "m", messages: [], stream: true }
        ]) {
          const answer = yield* ask("/api/chat", body, { secret })
          assertWell(answer)
          assert.strictEqual(answer.contentType, "application/json; charset=utf-8")
          const { created_at, ...rest } = json(answer)
          assert.isString(created_at)
          assert.deepStrictEqual(rest, {
            model: "m",
            message: { role: "assistant", content: "" },
            done: true,
            done_reason: "load"
          })
          assert.deepInclude(yield* auditRow(answer.headers.get("x-request-id")), {
            tokens_in: 0n,
            tokens_out: 0n
          })
        }
        const left = yield* call("/api/version", { secret })
        assert.strictEqual(left.headers.get("x-ratelimit-remaining-requests"), "7")
      })
  )

  it.effect("when a prompt is empty, then the model is loaded and never unloaded", () =>
    Effect.gen(function* () {
      for (const body of [{ prompt: "", keep_alive: 0 }, { keep_alive: 0 }, { prompt: "", stream: true }]) {
        const answer = yield* ask("/api/generate", { model: "m", ...body })
        assert.strictEqual(answer.contentType, "application/json; charset=utf-8")
        assert.deepInclude(json(answer), { response: "", done: true, done_reason: "load" })
        assert.notProperty(answer.sent, "keep_alive")
      }
    })
  )

  it.effect("when format is json or a schema, then it is passed on, and anything else is refused", () =>
    Effect.gen(function* () {
      const schema = { type: "object", properties: { a: { type: "string" } } }
      for (const [format, sent] of [
        ["json", "json"],
        [schema, schema],
        ["", undefined],
        [null, undefined]
      ] as const) {
        const answer = yield* ask("/api/chat", whole({ format }))
        assertWell(answer)
        assert.deepStrictEqual(answer.sent?.["format"], sent)
      }
      for (const format of ["xml", 5, [], true])
        assertRefused(yield* ask("/api/chat", whole({ format })), "format")
    })
  )

  it.effect("when think is asked of a model that cannot, or is an unknown word, then it is refused", () =>
    Effect.gen(function* () {
      yield* install([{ name: "plain:latest", capabilities: ["completion"] }])
      for (const think of [true, "low", "high"]) {
        for (const path of ["/api/chat", "/api/generate"]) {
          const answer = yield* ask(path, { ...chat({ model: "plain", think }), prompt: "x" })
          assertRefused(answer, "think: this model does not support thinking")
        }
      }
      assertWell(yield* ask("/api/chat", whole({ model: "plain", think: false })))
      const able = yield* ask("/api/chat", whole({ think: "max" }))
      assert.strictEqual(able.sent?.["think"], "max")
      assertRefused(yield* ask("/api/chat", whole({ think: "extreme" })), "think: expected")
      // Who may not use it is not told what it can do.
      const { secret } = yield* newKey({ models: ["m"] })
      assert.strictEqual(
        (yield* ask("/api/chat", whole({ model: "plain", think: true }), { secret })).status,
        403
      )
    })
  )

  it.effect("when top_logprobs is 0 to 20, then it is accepted, and anything else is refused", () =>
    Effect.gen(function* () {
      for (const top_logprobs of [21, -1, 1.5, "5"]) {
        assertRefused(
          yield* ask("/api/chat", whole({ logprobs: true, top_logprobs })),
          "top_logprobs: expected"
        )
      }
      const answer = yield* ask("/api/chat", whole({ logprobs: true, top_logprobs: 20 }))
      assert.deepInclude(answer.sent, { logprobs: true, top_logprobs: 20 })
    })
  )

  it.effect("when fields are unknown, then they are ignored at every level", () =>
    Effect.gen(function* () {
      const answer = yield* ask("/api/chat", {
        ...whole({ unknown: { deep: [1] }, __proto: 1, options: { mirostat: 1, f16_kv: true } }),
        messages: [{ ...user("hi"), cache_control: { type: "ephemeral" } }]
      })
      assertWell(answer)
      assert.deepStrictEqual(answer.sent, {
        messages: [user("hi")],
        model: "m:latest",
        stream: true,
        options: { num_predict: cap }
      })
    })
  )

  it.effect(
    "when a model is named in the client's spelling, then each frame has it, and the backend gets the discovered one",
    () =>
      Effect.gen(function* () {
        for (const model of ["m", "m:latest"]) {
          for (const path of ["/api/chat", "/api/generate"]) {
            const answer = yield* ask(path, { ...chat({ model }), prompt: "x" })
            assert.isTrue(lines(answer).every((frame) => frame.model === model))
            assert.strictEqual(answer.sent?.["model"], "m:latest")
          }
          const embedded = yield* ask("/api/embed", { model, input: "a" })
          assert.strictEqual(json(embedded).model, model)
          assert.strictEqual(embedded.sent?.["model"], "m:latest")
        }
      })
  )

  it.effect("when a name is an alias only the backend understands, then it names no model", () =>
    Effect.gen(function* () {
      const { secret } = yield* newKey()
      const names = [
        "m:cloud",
        "m:latest-cloud",
        "m:local",
        "registry.ollama.ai/library/m",
        "library/m",
        " m",
        "m ",
        "M"
      ]
      for (const model of [...names, "m:LATEST", "m:", "m\n", "m:latest:latest"]) {
        const answer = yield* ask("/api/chat", hello({ model }), { secret })
        assert.strictEqual(answer.status, 403, model)
        assert.strictEqual(json(answer).error.message, "forbidden", model)
        assert.lengthOf(answer.calls, 0, model)
      }
    })
  )
})
