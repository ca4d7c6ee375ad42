import OpenAI, { APIError, AuthenticationError, PermissionDeniedError, RateLimitError } from "openai"
import { zodTextFormat } from "openai/helpers/zod"
import { z } from "zod"
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
  text,
  tool,
  tooLong,
  url,
  wrongKey
} from "./matrix.mjs"

const client = (apiKey = key) => new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 60_000 })
const ask = (more = {}, apiKey = key) =>
  client(apiKey).responses.create({ model: "plain", input: text, max_output_tokens: 16, ...more })
const answer = z.object({ kind: z.enum(["a", "b"]) })

await run("openai, Responses", "openai", {
  chat: async () => {
    const response = await ask()
    expect(response.usage.output_tokens > 0 && response.output_text !== "", "no text or usage")
  },
  stream: async () => {
    const events = await collected(await ask({ stream: true }))
    expect(events.at(-1).response.usage.output_tokens > 0, "no usage")
  },
  tools: async () => {
    const tools = [{ type: "function", ...tool.function }]
    const more = { model: "tools", tools, max_output_tokens: 60 }
    const { output } = await ask({ ...more, input: messages })
    const call = output.find(({ type }) => type === "function_call")
    expect(call.arguments === '{"city":"Paris"}', "no call")
    const result = { type: "function_call_output", call_id: call.call_id, output: "sunny" }
    await ask({ ...more, input: [...messages, ...output, result] })
  },
  structured: async () => {
    const parsed = await client().responses.parse({
      model: "plain",
      input: text,
      text: { format: zodTextFormat(answer, "answer") }
    })
    expect("ab".includes(parsed.output_parsed.kind), "not parsed")
  },
  embeddings: notOffered("Responses have none"),
  list: async () => {
    const { id } = await client().models.retrieve("plain")
    expect(id === "plain", "not described")
  },
  abort: async () => {
    const stream = await ask({ model: "slow", stream: true, max_output_tokens: 900 })
    for await (const event of stream) if (event.type === "response.output_text.delta") break
    stream.controller.abort()
  },
  401: async () =>
    expect((await refusal(() => ask({}, wrongKey))) instanceof AuthenticationError, "another error"),
  403: async () =>
    expect(
      (await refusal(() => ask({ model: forbiddenModel }))) instanceof PermissionDeniedError,
      "another error"
    ),
  413: async () => {
    const error = await refusal(() => ask({ input: tooLong }))
    expect(error instanceof APIError && error.status === 413, "another error")
  },
  429: async () =>
    expect((await refusal(() => ask({}, limitedKey))) instanceof RateLimitError, "another error"),
  "retry-after": async () => {
    const error = await refusal(() => ask({}, limitedKey))
    expect(Number(error.headers.get("retry-after")) >= 1, "no Retry-After")
  }
})
