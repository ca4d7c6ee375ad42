/** The Vercel AI SDK through its OpenAI-compatible provider. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { assert, layer } from "@effect/vitest"
import { APICallError, generateText, isStepCount, streamText, tool } from "ai"
import { Effect } from "effect"
import { z } from "zod"
import { fake as wire } from "../support/FakeBackend.ts"
import { Fake, Gateway, layerGateway, newKey } from "../support/Gateway.ts"
import { answered, collected, refused } from "./promised.ts"
import { testWith } from "../support/testWith.ts"

const live = { excludeTestServices: true } as const

const connect = Effect.fnUntraced(function* (secret: string) {
  const { url } = yield* Gateway
  return createOpenAICompatible({
    name: "tollgate",
    baseURL: `${url}/v1`,
    apiKey: secret,
    supportsStructuredOutputs: true
  })
})

layer(layerGateway(), live)("the Vercel AI SDK", (it) => {
  const test = testWith(it.effect)

  test("when it streams text, then it gets usage although it did not ask for it", function* () {
    const { secret } = yield* newKey()
    const provider = yield* connect(secret)
    const result = streamText({ model: provider("m"), prompt: "Hello" })
    assert.deepStrictEqual(yield* answered(() => collected(result.textStream)), ["Hello", " world", "!"])
    assert.strictEqual(yield* answered(() => result.finishReason), "stop")
    assert.deepInclude(yield* answered(() => result.usage), { inputTokens: 7, outputTokens: 3 })
  })

  test("when the model thinks, then reasoning is apart from the answer", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const provider = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.thinking("A greeting."), wire.chat("Hi"), wire.done()] })
    const result = streamText({ model: provider("m"), prompt: "Hello" })
    assert.strictEqual(yield* answered(() => result.reasoningText), "A greeting.")
    assert.strictEqual(yield* answered(() => result.text), "Hi")
  })

  test("when two tools are called in one step, then it runs both and sends their results", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const provider = yield* connect(secret)
    fake.script({
      does: "stream",
      lines: [
        wire.toolCall("weather", { city: "Bern" }),
        wire.toolCall("weather", { city: "Oslo" }),
        wire.done()
      ]
    })
    const asked: Array<string> = []
    const weather = tool({
      description: "The weather in a city",
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => {
        asked.push(city)
        return `${city}: 12 degrees`
      }
    })
    const result = streamText({
      model: provider("m"),
      prompt: "Hello",
      tools: { weather },
      stopWhen: isStepCount(3)
    })
    assert.strictEqual(yield* answered(() => result.text), "Hello world!")
    assert.deepStrictEqual(asked, ["Bern", "Oslo"])
    const sent = JSON.parse(fake.requests.at(-1)?.raw ?? "{}")
    assert.deepStrictEqual(
      sent.messages.slice(2).map((message: { tool_name: unknown }) => message.tool_name),
      ["weather", "weather"]
    )
  })

  test("when a request is refused or a stream breaks, then it reads the error", function* () {
    const [{ secret }, fake] = [yield* newKey({ models: ["m"] }), yield* Fake]
    const provider = yield* connect(secret)
    const refusal = yield* refused(() => generateText({ model: provider("other"), prompt: "Hello" }))
    assert.isTrue(APICallError.isInstance(refusal))
    assert.deepInclude(refusal, { statusCode: 403, message: "forbidden", isRetryable: false })

    fake.script({ does: "stream", lines: [wire.chat("Hel"), wire.error("llama runner has terminated")] })
    const errors: Array<unknown> = []
    const broken = streamText({
      model: provider("m"),
      prompt: "Hello",
      onError: ({ error }) => void errors.push(error)
    })
    const text = yield* answered(() => collected(broken.textStream).catch(() => []))
    assert.notInclude(text.join(""), "llama")
    assert.lengthOf(errors, 1)
    assert.include(JSON.stringify(errors), "model backend unavailable")
  })
})
