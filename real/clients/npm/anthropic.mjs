import Anthropic, {
  APIError,
  AuthenticationError,
  PermissionDeniedError,
  RateLimitError
} from "@anthropic-ai/sdk"
import {
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

const client = (apiKey = key) => new Anthropic({ baseURL: url, apiKey, maxRetries: 0, timeout: 60_000 })
const bodyOf = (more) => ({ model: "plain", messages, max_tokens: 8, ...more })
const create = (more = {}, apiKey = key) => client(apiKey).messages.create(bodyOf(more))
const { description, name, parameters: input_schema } = tool.function
const tools = [{ name, description, input_schema }]

await run("@anthropic-ai/sdk", "@anthropic-ai/sdk", {
  chat: async () => {
    const message = await create({ max_tokens: 1_000_000 })
    expect(message.content[0].type === "text" && message.usage.output_tokens > 0, "no text or no usage")
    expect(message._request_id !== null, "no request id")
    const { input_tokens } = await client().messages.countTokens({ model: "plain", messages, tools })
    expect(input_tokens > 0, "no count")
  },
  stream: async () => {
    const stream = client().messages.stream(bodyOf({}))
    let said = ""
    stream.on("text", (text) => void (said += text))
    const message = await stream.finalMessage()
    expect(message.content[0].text === said && said !== "", "another text")
    expect(message.usage.output_tokens > 0, "no usage")
  },
  tools: async () => {
    for (const stream of [false, true]) {
      const asked = bodyOf({ model: "tools", tools })
      const message = stream
        ? await client().messages.stream(asked).finalMessage()
        : await client().messages.create(asked)
      const call = message.content.find(({ type }) => type === "tool_use")
      expect(message.stop_reason === "tool_use" && call.input.city === "Paris", "no call")
      const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" }
      const next = await create({
        model: "tools",
        tools,
        messages: [...messages, message, { role: "user", content: [result] }].map(({ content, role }) => ({
          role,
          content
        }))
      })
      expect(next.type === "message", "no answer to the result")
    }
  },
  structured: async () => {
    const { content } = await create({
      max_tokens: 64,
      output_config: { format: { type: "json_schema", schema } }
    })
    expect("ab".includes(JSON.parse(content[0].text).kind), "not the schema")
  },
  embeddings: notOffered("Anthropic has no embeddings"),
  list: notOffered("it lists models in Anthropic's shape"),
  abort: async () => {
    const stream = await create({ model: "slow", stream: true, max_tokens: 900 })
    for await (const _event of stream) break
    stream.controller.abort()
  },
  401: async () =>
    expect((await refusal(() => create({}, wrongKey))) instanceof AuthenticationError, "another error"),
  403: async () => {
    const error = await refusal(() => create({ model: forbiddenModel }))
    expect(error instanceof PermissionDeniedError && error.requestID !== null, "another error")
  },
  413: async () => {
    const error = await refusal(() => create({ messages: tooLong }))
    expect(error instanceof APIError && error.status === 413, "another error")
  },
  429: async () => {
    const error = await refusal(() => create({}, limitedKey))
    expect(error instanceof RateLimitError && error.error.error.type === "rate_limit_error", "another error")
  },
  "retry-after": async () => {
    const error = await refusal(() => create({}, limitedKey))
    expect(Number(error.headers.get("retry-after")) >= 1, "no Retry-After")
  }
})
