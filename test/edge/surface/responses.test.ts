import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { fake } from "../../support/FakeBackend.ts"
import { auditRow, Fake, layerGateway, newKey } from "../../support/Gateway.ts"
import { checkStream, textIn } from "../../unit/http/dialect/responses/events.ts"
import { ask, assertRefused, assertWell, json, live } from "./asking.ts"

const path = "/v1/responses"
const asked = (more: object = {}) => ({ model: "m", input: "Hello", ...more })
const streaming = (more: object = {}) => asked({ stream: true, ...more })
const tool = { type: "function", name: "f", parameters: { type: "object" } }

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

  it.effect(
    "when it asks for more output than the cap, then the cap is sent, and headers and answer say so",
    () =>
      Effect.gen(function* () {
        const lowered = yield* ask(path, asked({ max_output_tokens: 32_000 }))
        assert.strictEqual(lowered.headers.get("x-max-tokens"), "100")
        assert.deepInclude(lowered.sent?.["options"], { num_predict: 100 })
        assert.strictEqual(json(lowered).max_output_tokens, 100)
        const within = yield* ask(path, asked({ max_output_tokens: 50 }))
        assert.isNull(within.headers.get("x-max-tokens"))
        assert.deepInclude(within.sent?.["options"], { num_predict: 50 })
      })
  )

  it.effect("when the model calls tools, then their results go back to it as one conversation", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script({
        does: "stream",
        lines: [fake.thinking("hm"), fake.chat("I look"), fake.toolCall("f", { a: 1 }, "call_1"), fake.done()]
      })
      const { output } = checkStream((yield* ask(path, streaming({ tools: [tool] }))).text)
      const result = { type: "function_call_output", call_id: "call_1", output: "found" }
      const question = { role: "user", content: "Hello" }
      const { sent } = yield* ask(path, asked({ input: [question, ...output, result], tools: [tool] }))
      assert.deepStrictEqual(sent?.["messages"], [
        question,
        {
          role: "assistant",
          content: "I look",
          thinking: "hm",
          tool_calls: [{ id: "call_1", function: { name: "f", arguments: { a: 1 } } }]
        },
        { role: "tool", content: "found", tool_call_id: "call_1", tool_name: "f" }
      ])
    })
  )

  it.effect(
    "when the model server fails in the middle, then the stream ends with response.failed, and says nothing of it",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        backend.script({ does: "stream", lines: [fake.chat("a"), fake.error("CUDA out of memory")] })
        const answer = yield* ask(path, streaming())
        assertWell(answer)
        const { error, output, status } = checkStream(answer.text)
        assert.deepStrictEqual([status, output], ["failed", []])
        assert.deepStrictEqual(error, { code: "server_error", message: "model backend unavailable" })
        assert.notInclude(answer.text, "CUDA")
      })
  )

  it.effect("when the answer is cut, by its bound or by the rest of a limit, then it is incomplete", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      backend.script({
        does: "stream",
        lines: [fake.chat("a"), fake.done("chat", { done_reason: "length" })]
      })
      const bounded = checkStream((yield* ask(path, streaming())).text)
      backend.script({
        does: "stream",
        lines: [
          ...Array.from({ length: 80 }, () => fake.chat("word ")),
          fake.done("chat", { eval_count: 80 })
        ]
      })
      const { secret } = yield* newKey({ tpm: 60 })
      const limited = checkStream((yield* ask(path, streaming(), { secret })).text)
      for (const { incomplete_details, status } of [bounded, limited])
        assert.deepStrictEqual([status, incomplete_details], ["incomplete", { reason: "max_output_tokens" }])
    })
  )

  it.effect(
    "when it refers to what was stored, then it is refused before any call, in the shape of every error",
    () =>
      Effect.gen(function* () {
        const cases = [
          [{ previous_response_id: "resp_1" }, "previous_response_id: not supported, send the whole input"],
          [{ input: [{ type: "item_reference", id: "msg_1" }] }, "set store to false"],
          [{ background: true }, "background: expected false"]
        ] as const
        for (const [more, detail] of cases) assertRefused(yield* ask(path, asked(more)), detail)
      })
  )
})
