import { Ollama } from "ollama"
import {
  collected,
  expect,
  forbiddenModel,
  key,
  limitedKey,
  messages,
  notOffered,
  refusal,
  run,
  schema,
  tool,
  tooLong,
  url,
  wrongKey
} from "./matrix.mjs"

const client = (secret = key) => new Ollama({ host: url, headers: { Authorization: `Bearer ${secret}` } })
const chat = (more = {}, secret = key) =>
  client(secret).chat({ model: "plain", messages, options: { num_predict: 8 }, ...more })
const status = async (call) => (await refusal(call)).status_code

await run("ollama", "ollama", {
  chat: async () => expect((await chat()).eval_count > 0, "no counts"),
  stream: async () => expect((await collected(await chat({ stream: true }))).at(-1).done, "no end"),
  tools: async () => {
    const { message } = await chat({ model: "tools", tools: [tool] })
    expect(message.tool_calls[0].function.arguments.city === "Paris", "no call")
  },
  structured: async () => {
    const { message } = await chat({ format: schema, options: { num_predict: 60 } })
    expect("ab".includes(JSON.parse(message.content).kind), message.content)
  },
  embeddings: async () => {
    const { embeddings } = await client().embed({ model: "embed", input: ["one", "two"] })
    expect(embeddings.length === 2, "not two")
  },
  list: async () => {
    const { models } = await client().list()
    expect(
      models.some(({ name }) => name === "plain:latest"),
      "not listed"
    )
  },
  abort: async () => {
    const one = client()
    const stream = await one.chat({ model: "slow", messages, stream: true, options: { num_predict: 900 } })
    const error = await refusal(async () => {
      for await (const _part of stream) one.abort()
    })
    expect(error.name === "AbortError", "another error")
  },
  401: async () => expect((await status(() => chat({}, wrongKey))) === 401, "another status"),
  403: async () => expect((await status(() => chat({ model: forbiddenModel }))) === 403, "another status"),
  413: async () => expect((await status(() => chat({ messages: tooLong }))) === 413, "another status"),
  429: async () => expect((await status(() => chat({}, limitedKey))) === 429, "another status"),
  "retry-after": notOffered("its error has no headers")
})
