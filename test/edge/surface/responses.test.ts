import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { auditRow, layerGateway } from "../../support/Gateway.ts"
import { checkStream, textIn } from "../../unit/http/dialect/responses/events.ts"
import { ask, assertWell, json, live } from "./asking.ts"

const path = "/v1/responses"
const asked = (more: object = {}) => ({ model: "m", input: "Hello", ...more })
const streaming = (more: object = {}) => asked({ stream: true, ...more })

layer(layerGateway({ EXTRA_SURFACES: "responses", NUM_PREDICT_CAP: "100" }), live)("Responses", (it) => {
  it.effect(
    "when it is asked for a stream and for one object, then both are one answer, charged the same",
    () =>
      Effect.gen(function* () {
        const streamed = yield* ask(path, streaming())
        assertWell(streamed)
        assert.strictEqual(streamed.contentType, "text/event-stream")
        const last = checkStream(streamed.text)
        const whole = json(yield* ask(path, asked()))
        for (const response of [last, whole]) {
          assert.strictEqual(response.status, "completed")
          assert.strictEqual(response.output.map(textIn).join(""), "Hello world!")
          assert.deepInclude(response.usage, { input_tokens: 7, output_tokens: 3, total_tokens: 10 })
        }
        assert.include(last.id, streamed.headers.get("x-request-id")?.replaceAll("-", "") ?? "none")
        assert.deepStrictEqual(streamed.sent?.["messages"], [{ role: "user", content: "Hello" }])
        const row = yield* auditRow(streamed.headers.get("x-request-id"))
        assert.deepInclude(row, { status: 200, tokens_in: 7n, tokens_out: 3n })
      })
  )
})
