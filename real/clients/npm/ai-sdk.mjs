/** Argument: `openai-compatible`, `openai` (Responses) or `ollama`, which provider of the AI SDK. */
import { createOpenAI } from "@ai-sdk/openai"
import { createOpenAICompatible } from "@ai-sdk/openai-compatible"
import { embedMany, generateObject, generateText, jsonSchema, streamText, tool } from "ai"
import { createOllama } from "ollama-ai-provider-v2"
import {
  collected,
  expect,
  forbiddenModel,
  key,
  limitedKey,
  notOffered,
  refusal,
  run,
  schema,
  text,
  tool as weather,
  url,
  wrongKey
} from "./matrix.mjs"

const packages = {
  "openai-compatible": "@ai-sdk/openai-compatible",
  openai: "@ai-sdk/openai",
  ollama: "ollama-ai-provider-v2"
}
const providers = {
  "openai-compatible": (apiKey) =>
    createOpenAICompatible({
      name: "tollgate",
      baseURL: `${url}/v1`,
      apiKey,
      includeUsage: true,
      supportsStructuredOutputs: true
    }),
  openai: (apiKey) => createOpenAI({ baseURL: `${url}/v1`, apiKey }),
  ollama: (secret) => createOllama({ baseURL: `${url}/api`, headers: { Authorization: `Bearer ${secret}` } })
}
const form = process.argv[2]
const provider = (secret = key) => providers[form](secret)

const ask = (more = {}, { name = "plain", secret = key } = {}) => ({
  model: provider(secret)(name),
  prompt: text,
  maxOutputTokens: 8,
  maxRetries: 0,
  ...more
})
const status = async (call) => (await refusal(call)).statusCode
const tools = {
  get_weather: tool({
    description: weather.function.description,
    inputSchema: jsonSchema(weather.function.parameters)
  })
}

await run(`AI SDK, ${packages[form]}`, packages[form], {
  chat: async () => expect((await generateText(ask())).usage.outputTokens > 0, "no usage"),
  stream: async () => {
    const answer = streamText(ask())
    expect((await collected(answer.textStream)).length > 1, "not streamed")
    expect((await answer.usage).outputTokens > 0, "no usage")
  },
  tools: async () => {
    const { toolCalls } = await generateText(ask({ tools, maxOutputTokens: 60 }, { name: "tools" }))
    expect(toolCalls[0].input.city === "Paris", "no call")
  },
  structured: async () => {
    const { object } = await generateObject(ask({ schema: jsonSchema(schema), maxOutputTokens: 60 }))
    expect("ab".includes(object.kind), "not parsed")
  },
  embeddings: async () => {
    const model = provider().textEmbeddingModel?.("embed") ?? provider().embeddingModel("embed")
    const { embeddings } = await embedMany({ model, values: ["one", "two"], maxRetries: 0 })
    expect(embeddings.length === 2, "not two")
  },
  list: notOffered("it lists no models"),
  abort: async () => {
    const leaving = new AbortController()
    const answer = streamText(
      ask({ abortSignal: leaving.signal, maxOutputTokens: 900, onError: () => {} }, { name: "slow" })
    )
    for await (const _part of answer.textStream) leaving.abort()
  },
  401: async () =>
    expect((await status(() => generateText(ask({}, { secret: wrongKey })))) === 401, "another status"),
  403: async () =>
    expect((await status(() => generateText(ask({}, { name: forbiddenModel })))) === 403, "another status"),
  413: async () =>
    expect(
      (await status(() => generateText(ask({ prompt: "x".repeat(300_000) })))) === 413,
      "another status"
    ),
  429: async () =>
    expect((await status(() => generateText(ask({}, { secret: limitedKey })))) === 429, "another status"),
  "retry-after": async () => {
    const error = await refusal(() => generateText(ask({}, { secret: limitedKey })))
    expect(Number(error.responseHeaders["retry-after"]) >= 1, "no Retry-After")
  }
})
