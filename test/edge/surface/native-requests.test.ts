import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { auditRow, call, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, chat, install, json, live, whole } from "./asking.ts"

layer(layerGateway(), live)("native requests", (it) => {
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
})
