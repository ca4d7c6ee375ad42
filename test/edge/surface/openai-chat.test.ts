import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { tagsEntry } from "../../../src/backend/demo/wire.ts"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import { fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, chat, install, live, user } from "./asking.ts"
import { comesTrue } from "../../support/wait.ts"

const path = "/v1/chat/completions"
const streaming = (more: object = {}) => chat({ stream: true, ...more })

layer(layerGateway(), live)("chat on the OpenAI surface", (it) => {
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
