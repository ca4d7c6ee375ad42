import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { fake } from "../../support/FakeBackend.ts"
import { call, Fake, layerGateway, newKey } from "../../support/Gateway.ts"
import { chat, user } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

const path = "/v1/chat/completions"
const streaming = (more: object = {}) => chat({ stream: true, ...more })

inWorld(layerGateway({ NUM_PREDICT_CAP: "100", OUTPUT_ABOVE_CAP: "lower" }))(
  "OUTPUT_ABOVE_CAP=lower",
  (test) => {
    test("when a bound is above the cap, then /v1 sends the cap and says so, and /api refuses as ever", function* () {
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
  }
)

inWorld(layerGateway({ ERROR_BODIES: "clients", BACKEND_IDLE_TIMEOUT_MS: "300" }))(
  "ERROR_BODIES=clients",
  (test) => {
    test("when a request fails, then error is a text on /api, and code one on /v1, and all else is the same", function* () {
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
      assert.deepStrictEqual(yield* failed("/api/generate", {}, "tg_no"), [401, { error: "unauthorized" }])
      // A path that is not served has no surface.
      assert.deepStrictEqual(yield* failed("/api/pull", {}), [403, { error: { ...forbidden, code: 403 } }])
    })

    test("when a stream fails, then its last event has the same form", function* () {
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
  }
)
