import { Agent } from "@mastra/core/agent"
import { createTool } from "@mastra/core/tools"
import { z } from "zod"
import {
  collected,
  expect,
  forbiddenModel,
  key,
  limitedKey,
  notOffered,
  refusal,
  run,
  text,
  url,
  wrongKey
} from "./matrix.mjs"

const agent = (name = "plain", secret = key, more = {}) =>
  new Agent({
    id: "asks",
    name: "asks",
    instructions: "",
    model: { id: `tollgate/${name}`, url: `${url}/v1`, apiKey: secret },
    maxRetries: 0,
    ...more
  })
const settings = { modelSettings: { maxOutputTokens: 60, maxRetries: 0 } }
/** The status is in the error or in what caused it. */
const status = async (call) => {
  let error = await refusal(call)
  while (error?.statusCode === undefined && error?.cause !== undefined) error = error.cause
  return error.statusCode
}

await run("@mastra/core", "@mastra/core", {
  chat: async () => expect((await agent().generate(text, settings)).text !== "", "no text"),
  stream: async () => {
    const answer = await agent().stream(text, settings)
    expect((await collected(answer.textStream)).length > 1, "not streamed")
  },
  tools: async () => {
    const cities = []
    const getWeather = createTool({
      id: "get_weather",
      description: "The weather in a city",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => {
        cities.push((input.context ?? input).city)
        return { sky: "sunny" }
      }
    })
    await agent("tools", key, { tools: { get_weather: getWeather } }).generate(text, {
      ...settings,
      maxSteps: 2
    })
    expect(cities[0] === "Paris", "no call")
  },
  structured: async () => {
    const { object } = await agent().generate(text, {
      ...settings,
      structuredOutput: { schema: z.object({ kind: z.enum(["a", "b"]) }) }
    })
    expect("ab".includes(object.kind), "not parsed")
  },
  embeddings: notOffered("it embeds with the AI SDK"),
  list: notOffered("it lists no models"),
  abort: async () => {
    const leaving = new AbortController()
    const answer = await agent("slow").stream(text, {
      modelSettings: { maxOutputTokens: 900 },
      abortSignal: leaving.signal
    })
    for await (const _part of answer.textStream) leaving.abort()
  },
  401: async () =>
    expect((await status(() => agent("plain", wrongKey).generate(text, settings))) === 401, "another status"),
  403: async () =>
    expect((await status(() => agent(forbiddenModel).generate(text, settings))) === 403, "another status"),
  413: async () =>
    expect((await status(() => agent().generate("x".repeat(300_000), settings))) === 413, "another status"),
  429: async () =>
    expect(
      (await status(() => agent("plain", limitedKey).generate(text, settings))) === 429,
      "another status"
    ),
  "retry-after": async () => {
    let error = await refusal(() => agent("plain", limitedKey).generate(text, settings))
    while (error?.responseHeaders === undefined && error?.cause !== undefined) error = error.cause
    expect(Number(error.responseHeaders["retry-after"]) >= 1, "no Retry-After")
  }
})
