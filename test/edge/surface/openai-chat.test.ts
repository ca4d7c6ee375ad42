import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import {
  ask,
  assertRefused,
  assertWell,
  chat,
  events,
  generate,
  install,
  json,
  live,
  user
} from "./asking.ts"
import { picture } from "../../support/pictures.ts"
import { comesTrue } from "../../support/wait.ts"

const path = "/v1/chat/completions"
const streaming = (more: object = {}) => chat({ stream: true, ...more })
const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } }

layer(layerGateway(), live)("chat on the OpenAI surface", (it) => {
  it.effect(
    "when it is streamed, then the role is first, id and time are one, finish and usage come last, then one [DONE]",
    () =>
      Effect.gen(function* () {
        for (const more of [{}, { stream_options: { include_usage: false } }, { stream_options: null }]) {
          const answer = yield* ask(path, streaming(more))
          assert.strictEqual(answer.contentType, "text/event-stream")
          const { chunks, done } = events(answer)
          assert.isTrue(done)
          assert.strictEqual(answer.text.split("[DONE]").length, 2)
          assert.strictEqual(new Set(chunks.map(({ id, created }) => `${id} ${created}`)).size, 1)
          assert.match(chunks[0].id, /^chatcmpl-.{20,}$/)
          assert.strictEqual(chunks[0].choices[0].delta.role, "assistant")
          assert.isTrue(chunks.slice(1).every(({ choices }) => !("role" in choices[0].delta)))
          assert.isTrue(
            chunks.slice(0, -1).every((chunk) => chunk.choices[0].finish_reason === null && !chunk.usage)
          )
          const last = chunks.at(-1)
          assert.deepStrictEqual(last.choices, [{ index: 0, delta: {}, finish_reason: "stop" }])
          assert.deepStrictEqual(last.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 })
        }
      })
  )

  it.effect("when usage is asked for, then it comes in a chunk of its own", () =>
    Effect.gen(function* () {
      for (const [to, body] of [
        [path, streaming({ stream_options: { include_usage: true } })],
        ["/v1/completions", generate({ stream: true, stream_options: { include_usage: true } })]
      ] as const) {
        const { chunks, done } = events(yield* ask(to, body))
        assert.isTrue(done)
        const [before, last] = chunks.slice(-2)
        assert.strictEqual(before.choices[0].finish_reason, "stop")
        assert.notProperty(before, "usage")
        assert.deepStrictEqual(last.choices, [])
        assert.deepStrictEqual(last.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 })
      }
    })
  )

  it.effect("when the backend numbers two calls 0, then they are 0 and 1, with ids of their own", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script({
        does: "stream",
        lines: [fake.toolCall("f", { a: 1 }), fake.toolCall("g", {}), fake.done()]
      })
      const { chunks } = events(yield* ask(path, streaming({ tools: [tool] })))
      const calls = chunks.flatMap(({ choices }) => choices[0].delta.tool_calls ?? [])
      assert.deepStrictEqual(
        calls.map((call) => [call.index, call.type, call.function.name, call.function.arguments]),
        [
          [0, "function", "f", '{"a":1}'],
          [1, "function", "g", "{}"]
        ]
      )
      assert.strictEqual(new Set(calls.map(({ id }) => id)).size, 2)
      assert.isTrue(calls.every(({ id }) => /^call[_-].{8,}$/.test(id)))
      assert.strictEqual(chunks.at(-1).choices[0].finish_reason, "tool_calls")
    })
  )

  it.effect("when calls come in the final frame, then they are sent, streamed and whole", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const calls = [
        { id: "x1", function: { index: 0, name: "f", arguments: { a: 1 } } },
        { function: { index: 0, name: "g", arguments: {} } }
      ]
      const last = fake.done("chat", { message: { role: "assistant", content: "", tool_calls: calls } })
      backend.script({ does: "stream", lines: [last] }, { does: "stream", lines: [last] })
      const { chunks } = events(yield* ask(path, streaming({ tools: [tool] })))
      assert.lengthOf(chunks, 2)
      assert.strictEqual(chunks[0].choices[0].delta.role, "assistant")
      assert.strictEqual(chunks[0].choices[0].delta.tool_calls[0].id, "x1")
      assert.strictEqual(chunks[1].choices[0].finish_reason, "tool_calls")
      const { choices } = json(yield* ask(path, chat({ tools: [tool] })))
      assert.isNull(choices[0].message.content)
      assert.lengthOf(choices[0].message.tool_calls, 2)
      assert.strictEqual(choices[0].finish_reason, "tool_calls")
    })
  )

  it.effect("when an answer was cut, then it says length", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const cut = {
        does: "stream",
        lines: [fake.chat("a"), fake.done("chat", { done_reason: "length" })]
      } as const
      backend.script(cut, cut)
      assert.strictEqual(
        events(yield* ask(path, streaming())).chunks.at(-1).choices[0].finish_reason,
        "length"
      )
      assert.strictEqual(json(yield* ask(path, chat())).choices[0].finish_reason, "length")
    })
  )

  it.effect("when a frame has thinking and content, then it is two chunks, with thinking as reasoning", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const both = { ...fake.chat(""), message: { role: "assistant", content: "so", thinking: "hm" } }
      const script = { does: "stream", lines: [fake.thinking("well"), both, fake.done()] } as const
      backend.script(script, script)
      const { chunks } = events(yield* ask(path, streaming()))
      assert.deepStrictEqual(
        chunks.map(({ choices }) => choices[0].delta),
        [{ role: "assistant", reasoning: "well" }, { reasoning: "hm" }, { content: "so" }, {}]
      )
      const { message } = json(yield* ask(path, chat())).choices[0]
      assert.deepInclude(message, { content: "so", reasoning: "wellhm" })
    })
  )

  it.effect("when the bound is given by either name, then the cap holds, and the newer name wins", () =>
    Effect.gen(function* () {
      for (const field of ["max_tokens", "max_completion_tokens"]) {
        for (const value of [65_537, 0, 1.5]) {
          assertRefused(yield* ask(path, chat({ [field]: value })), `${field}: expected`)
        }
      }
      const bound = (answer: { readonly sent: object | undefined }) =>
        Reflect.get(answer.sent ?? {}, "options")
      const both = yield* ask(path, chat({ max_tokens: 9, max_completion_tokens: 5 }))
      assert.deepStrictEqual(bound(both), { num_predict: 5 })
      assert.deepStrictEqual(bound(yield* ask(path, chat())), { num_predict: 65_536 })
    })
  )

  it.effect("when stop is a text or a list of texts, then it is passed on", () =>
    Effect.gen(function* () {
      for (const [stop, sent] of [
        ["a", ["a"]],
        [
          ["a", "b"],
          ["a", "b"]
        ],
        [null, undefined]
      ] as const) {
        const { sent: got } = yield* ask(path, chat({ stop }))
        assert.deepStrictEqual(Reflect.get(Object(got?.["options"]), "stop"), sent)
      }
      assertRefused(yield* ask(path, chat({ stop: ["a", 1] })), "stop")
    })
  )

  it.effect(
    "when there are developer messages, tool answers and arguments, then they become system, the tool's name and JSON",
    () =>
      Effect.gen(function* () {
        const calling = (text: string) => ({
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: text } }]
        })
        const result = { role: "tool", tool_call_id: "c1", content: [{ type: "text", text: "42" }] }
        const messages = [{ role: "developer", content: "be brief" }, user("hi"), calling(""), result]
        const answer = yield* ask(path, chat({ messages }))
        assert.deepStrictEqual(answer.sent?.["messages"], [
          { role: "system", content: "be brief" },
          user("hi"),
          {
            role: "assistant",
            content: "",
            tool_calls: [{ id: "c1", function: { name: "f", arguments: {} } }]
          },
          { role: "tool", content: "42", tool_call_id: "c1", tool_name: "f" }
        ])
        for (const text of ["{bad", "[1]", '"x"', "null"]) {
          const refused = yield* ask(path, chat({ messages: [user("hi"), calling(text), result] }))
          assertRefused(refused, "messages.1.tool_calls.0.function.arguments: expected a JSON object", text)
        }
      })
  )

  it.effect("when images are data URLs, then they are passed on, and nothing is ever fetched", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const image = (url: string) => chat({ messages: [user([{ type: "image_url", image_url: { url } }])] })
      // The gateway itself lists models and asks for the version.
      const own = new Set(["/api/tags", "/api/version"])
      const lookups = backend.lookups.filter(({ path }) => !own.has(path)).length
      const urls = [
        `${backend.url}/x.png`,
        "https://example.invalid/x.png",
        "file:///etc/passwd",
        "data:image/gif;base64,AAAA"
      ]
      for (const url of [...urls, "data:image/png;base64,@@@@", "data:text/html;base64,AAAA"]) {
        assertRefused(yield* ask(path, image(url)), "messages.0.content", url)
      }
      assert.strictEqual(backend.lookups.filter(({ path }) => !own.has(path)).length, lookups)
      const answer = yield* ask(path, image(`data:image/png;base64,${picture}`))
      assert.deepStrictEqual(answer.sent?.["messages"], [{ role: "user", content: "", images: [picture] }])
    })
  )

  it.effect(
    "when a format has no schema, or more than one answer is asked for, then it is refused; without tools none are sent",
    () =>
      Effect.gen(function* () {
        assertRefused(yield* ask(path, chat({ response_format: { type: "json_schema" } })), "response_format")
        assertRefused(
          yield* ask(path, chat({ response_format: { type: "json_schema", json_schema: { name: "x" } } })),
          "response_format"
        )
        assertRefused(yield* ask(path, chat({ n: 2 })), "n: expected 1")
        assertRefused(yield* ask("/v1/completions", generate({ n: 2 })), "n: expected 1")
        assertRefused(yield* ask("/v1/completions", generate({ best_of: 2 })), "best_of: expected 1")
        assert.notProperty((yield* ask(path, chat({ tools: [tool], tool_choice: "none" }))).sent, "tools")
      })
  )

  it.effect(
    "when reasoning is asked of a model that cannot think, then it is left out, and it is off when none is wanted",
    () =>
      Effect.gen(function* () {
        yield* install([{ name: "plain:latest", capabilities: ["completion"] }])
        for (const wish of [
          { reasoning_effort: "high" },
          { reasoning: { effort: "low" } },
          { reasoning_effort: "none" }
        ]) {
          const answer = yield* ask(path, chat({ model: "plain", ...wish }))
          assertWell(answer)
          assert.notProperty(answer.sent, "think")
        }
        assert.strictEqual((yield* ask(path, chat({ reasoning_effort: "high" }))).sent?.["think"], "high")
        assert.strictEqual((yield* ask(path, chat({ reasoning_effort: "none" }))).sent?.["think"], false)
        assert.notProperty((yield* ask(path, chat())).sent, "think")
      })
  )

  it.effect("when the list of an older backend says nothing of capabilities, then its description does", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      for (const [name, capabilities] of [
        ["oldplain:latest", ["completion"]],
        ["oldthinker:latest", ["completion", "thinking"]]
      ] as const) {
        const { capabilities: _untold, ...bare } = tagsEntry(name, [])
        backend.setDescription(name, fake.described(capabilities, 2048))
        yield* install([], [bare])
        const { secret } = yield* newKey()
        yield* eventually(call("/api/tags", { secret }), ({ text }) =>
          JSON.parse(text).models.some((model: JsonObject) => model["name"] === name && model["capabilities"])
        )
        const answer = yield* ask(path, chat({ model: name, reasoning_effort: "high" }))
        assertWell(answer)
        assert.strictEqual(answer.sent?.["think"], name === "oldthinker:latest" ? "high" : undefined)
      }
      // Once per digest, however often the list is polled.
      const polls = () => backend.lookups.filter((one) => one.path === "/api/tags").length
      const polled = polls()
      assert.isTrue(yield* comesTrue(() => polls() > polled + 1))
      const asked = backend.descriptions.map(({ body }) => body?.["model"])
      assert.strictEqual(new Set(asked).size, asked.length)
    })
  )
})

layer(layerGateway({ NUM_PREDICT_CAP: "100", OUTPUT_ABOVE_CAP: "lower" }), live)(
  "OUTPUT_ABOVE_CAP=lower",
  (it) => {
    it.effect(
      "when a bound is above the cap, then /v1 sends the cap and says so, and /api refuses as ever",
      () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const backend = yield* Fake
          const bounded = Effect.fnUntraced(function* (to: string, body: object) {
            const { headers, status } = yield* call(to, { secret, body })
            const sent = Object(backend.requests.at(-1)?.body?.["options"]).num_predict
            return [status, headers.get("x-max-tokens"), sent]
          })
          for (const to of [path, "/v1/completions"]) {
            const body = { model: "m", ...(to === path ? { messages: [user("hi")] } : { prompt: "hi" }) }
            assert.deepStrictEqual(yield* bounded(to, { ...body, max_tokens: 32_000 }), [200, "100", 100])
            assert.deepStrictEqual(yield* bounded(to, { ...body, max_tokens: 100 }), [200, null, 100])
            assert.deepStrictEqual(yield* bounded(to, { ...body, max_tokens: 7 }), [200, null, 7])
            assert.deepStrictEqual(yield* bounded(to, body), [200, null, 100])
            assert.strictEqual((yield* bounded(to, { ...body, max_tokens: 0 }))[0], 400)
          }
          const newer = { model: "m", messages: [user("hi")], max_tokens: 7, max_completion_tokens: 500 }
          assert.deepStrictEqual(yield* bounded(path, newer), [200, "100", 100])
          const older = { ...newer, max_tokens: 500, max_completion_tokens: 7 }
          assert.deepStrictEqual(yield* bounded(path, older), [200, null, 7])
          const native = { model: "m", messages: [user("hi")], options: { num_predict: 101 } }
          assert.strictEqual((yield* bounded("/api/chat", native))[0], 400)
        })
    )
  }
)

layer(layerGateway({ ERROR_BODIES: "clients", BACKEND_IDLE_TIMEOUT_MS: "300" }), live)(
  "ERROR_BODIES=clients",
  (it) => {
    it.effect(
      "when a request fails, then error is a text on /api, and code one on /v1, and all else is the same",
      () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const failed = Effect.fnUntraced(function* (to: string, body: object, key = secret) {
            const { status, text } = yield* call(to, { secret: key, body })
            const { request_id: id, ...rest } = JSON.parse(text)
            assert.isString(id)
            return [status, rest]
          })
          const forbidden = { message: "forbidden", type: "forbidden" }
          assert.deepStrictEqual(yield* failed("/api/chat", chat({ model: "none" })), [
            403,
            { error: "forbidden" }
          ])
          assert.deepStrictEqual(yield* failed(path, chat({ model: "none" })), [
            403,
            { error: { ...forbidden, code: "403" } }
          ])
          assert.deepStrictEqual(yield* failed("/api/generate", {}, "tg_no"), [
            401,
            { error: "unauthorized" }
          ])
          // A path that is not served has no surface.
          assert.deepStrictEqual(yield* failed("/api/pull", {}), [
            403,
            { error: { ...forbidden, code: 403 } }
          ])
        })
    )

    it.effect("when a stream fails, then its last event has the same form", () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const broken = { does: "stream", lines: [fake.chat("a")], ends: "hang" } as const
        backend.script(broken, broken)
        const last = (text: string) => text.trim().split("\n").at(-1) ?? ""
        const { secret } = yield* newKey()
        const openai = yield* call(path, { secret, body: streaming() })
        const { error } = JSON.parse(last(openai.text).slice("data: ".length))
        assert.deepStrictEqual(error, {
          message: "model backend unavailable",
          type: "bad_gateway",
          code: "502"
        })
        const native = yield* call("/api/chat", { secret, body: chat() })
        assert.deepStrictEqual(JSON.parse(last(native.text)), { error: "model backend unavailable" })
      })
    )
  }
)

layer(layerGateway(), live)("what clients of Ollama send", (it) => {
  it.effect("when curl -d posts JSON, then /api takes it, and /v1 does not", () =>
    Effect.gen(function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      const post = (to: string, type: string, body: object) =>
        Effect.promise(() =>
          fetch(`${url}${to}`, {
            method: "POST",
            headers: { authorization: `Bearer ${secret}`, "content-type": type },
            body: JSON.stringify(body)
          }).then(({ status }) => status)
        )
      const form = "application/x-www-form-urlencoded"
      assert.strictEqual(yield* post("/api/chat", form, chat()), 200)
      assert.strictEqual(yield* post("/api/show", form, { model: "m" }), 200)
      assert.strictEqual(yield* post("/api/chat", `${form}; charset=utf-8`, chat()), 200)
      assert.strictEqual(yield* post(path, form, chat()), 400)
      assert.strictEqual(yield* post("/api/chat", "text/plain", chat()), 400)
    })
  )

  it.effect(
    "when a message has a role that only its model's template knows, then it is passed on as it is",
    () =>
      Effect.gen(function* () {
        for (const role of ["control", "document the first", "x".repeat(64)]) {
          const messages = [{ role, content: "thinking" }, user("hi")]
          const answer = yield* ask("/api/chat", chat({ messages }))
          assertWell(answer)
          assert.deepStrictEqual(answer.sent?.["messages"], messages)
        }
        assertRefused(
          yield* ask("/api/chat", chat({ messages: [{ role: "x".repeat(65), content: "" }] })),
          "messages.0.role"
        )
        assertRefused(
          yield* ask(path, chat({ messages: [{ role: "control", content: "" }] })),
          "messages.0.role"
        )
      })
  )
})
