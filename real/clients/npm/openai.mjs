import OpenAI, { APIError, AuthenticationError, PermissionDeniedError, RateLimitError } from "openai"
import { zodResponseFormat } from "openai/helpers/zod"
import { z } from "zod"
import {
  collected,
  expect,
  forbiddenModel,
  key,
  limitedKey,
  messages,
  refusal,
  run,
  tool,
  tooLong,
  url,
  wrongKey
} from "./matrix.mjs"

const client = (apiKey = key) => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 60_000 })
const chat = (more = {}, apiKey = key) =>
  client(apiKey).chat.completions.create({ model: "plain", messages, max_tokens: 8, ...more })
const answer = z.object({ kind: z.enum(["a", "b"]) })

await run("openai", "openai", {
  chat: async () => expect((await chat()).usage.completion_tokens > 0, "no usage"),
  stream: async () => {
    const chunks = await collected(await chat({ stream: true, stream_options: { include_usage: true } }))
    expect(chunks.at(-1).usage.completion_tokens > 0, "no usage")
  },
  tools: async () => {
    const { choices } = await chat({ model: "tools", tools: [tool] })
    expect(choices[0].message.tool_calls[0].function.arguments === '{"city":"Paris"}', "no call")
  },
  structured: async () => {
    const parsed = await client().chat.completions.parse({
      model: "plain",
      messages,
      response_format: zodResponseFormat(answer, "answer")
    })
    expect("ab".includes(parsed.choices[0].message.parsed.kind), "not parsed")
  },
  embeddings: async () => {
    const input = ["one", "two"]
    const packed = await client().embeddings.create({ model: "embed", input })
    const plain = await client().embeddings.create({ model: "embed", input, encoding_format: "float" })
    const [one, other] = [packed.data[1].embedding, plain.data[1].embedding]
    expect(
      one.length === other.length && one.every((value, i) => Math.abs(value - other[i]) < 1e-5),
      "not alike"
    )
  },
  list: async () => {
    const { data } = await client().models.list()
    expect(
      data.some(({ id }) => id === "plain:latest"),
      "not listed"
    )
  },
  abort: async () => {
    const stream = await chat({ model: "slow", stream: true, max_tokens: 900 })
    for await (const _part of stream) break
    stream.controller.abort()
  },
  401: async () =>
    expect((await refusal(() => chat({}, wrongKey))) instanceof AuthenticationError, "another error"),
  403: async () =>
    expect(
      (await refusal(() => chat({ model: forbiddenModel }))) instanceof PermissionDeniedError,
      "another error"
    ),
  413: async () => {
    const error = await refusal(() => chat({ messages: tooLong }))
    expect(error instanceof APIError && error.status === 413, "another error")
  },
  429: async () =>
    expect((await refusal(() => chat({}, limitedKey))) instanceof RateLimitError, "another error"),
  "retry-after": async () => {
    const error = await refusal(() => chat({}, limitedKey))
    expect(Number(error.headers.get("retry-after")) >= 1, "no Retry-After")
  }
})
