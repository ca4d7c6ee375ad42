import { Agent, MaxTurnsExceededError, OpenAIProvider, Runner, tool } from "@openai/agents"
import OpenAI from "openai"
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

/** Nothing is set but address and key, so it asks `/v1/responses`. */
const runner = (apiKey = key) =>
  new Runner({
    modelProvider: new OpenAIProvider({
      openAIClient: new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 60_000 })
    }),
    tracingDisabled: true
  })
const agent = (more = {}) =>
  new Agent({ name: "asks", model: "plain", modelSettings: { maxTokens: 2000 }, ...more })
const ask = (more = {}, apiKey = key, input = text) => runner(apiKey).run(agent(more), input)
const status = async (call) => (await refusal(call)).status

await run("@openai/agents", "@openai/agents", {
  chat: async () => {
    const { finalOutput, state } = await ask()
    expect(finalOutput !== "" && state.usage.outputTokens > 0, "no text or usage")
  },
  stream: async () => {
    const answer = await runner().run(agent(), text, { stream: true })
    expect((await collected(answer.toTextStream())).length > 1, "not streamed")
    await answer.completed
  },
  tools: async () => {
    const cities = []
    const getWeather = tool({
      name: "get_weather",
      description: "The weather in a city",
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        cities.push(city)
        return "sunny"
      }
    })
    // The model of the test calls again whatever the result is.
    const turns = runner().run(
      agent({ model: "tools", tools: [getWeather], modelSettings: { maxTokens: 400 } }),
      text,
      { maxTurns: 2 }
    )
    const error = await turns.then(
      () => undefined,
      (reason) => reason
    )
    expect(error === undefined || error instanceof MaxTurnsExceededError, String(error))
    expect(cities[0] === "Paris", "no call")
  },
  structured: async () => {
    const { finalOutput } = await ask({ outputType: z.object({ kind: z.enum(["a", "b"]) }) })
    expect("ab".includes(finalOutput.kind), "not parsed")
  },
  embeddings: notOffered("it has none"),
  list: notOffered("it lists no models"),
  abort: async () => {
    const leaving = new AbortController()
    const answer = await runner().run(agent({ model: "slow", modelSettings: { maxTokens: 900 } }), text, {
      stream: true,
      signal: leaving.signal
    })
    for await (const _part of answer.toTextStream()) leaving.abort()
  },
  401: async () => expect((await status(() => ask({}, wrongKey))) === 401, "another status"),
  403: async () => expect((await status(() => ask({ model: forbiddenModel }))) === 403, "another status"),
  413: async () => expect((await status(() => ask({}, key, "x".repeat(300_000)))) === 413, "another status"),
  429: async () => expect((await status(() => ask({}, limitedKey))) === 429, "another status"),
  "retry-after": async () => {
    const error = await refusal(() => ask({}, limitedKey))
    expect(Number(error.headers.get("retry-after")) >= 1, "no Retry-After")
  }
})
