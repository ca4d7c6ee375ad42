import { assert } from "@effect/vitest"
import { auditRow, call, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertWell, json } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

inWorld(layerGateway())("native requests", (test) => {
  test("when there are no messages, then the model is loaded: one object whatever stream says, no tokens, one request", function* () {
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

  test("when a prompt is empty, then the model is loaded and never unloaded", function* () {
    for (const body of [{ prompt: "", keep_alive: 0 }, { keep_alive: 0 }, { prompt: "", stream: true }]) {
      const answer = yield* ask("/api/generate", { model: "m", ...body })
      assert.strictEqual(answer.contentType, "application/json; charset=utf-8")
      assert.deepInclude(json(answer), { response: "", done: true, done_reason: "load" })
      assert.notProperty(answer.sent, "keep_alive")
    }
  })
})
