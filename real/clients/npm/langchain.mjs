/** Argument: `openai` or `ollama`, which of LangChain's packages. */
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama"
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai"
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
  tool,
  url,
  wrongKey
} from "./matrix.mjs"

const openai = process.argv[2] === "openai"
const model = (name = "plain", secret = key, tokens = 8) =>
  openai
    ? new ChatOpenAI({
        model: name,
        apiKey: secret,
        maxRetries: 0,
        maxTokens: tokens,
        configuration: { baseURL: `${url}/v1` }
      })
    : new ChatOllama({
        model: name,
        baseUrl: url,
        maxRetries: 0,
        numPredict: tokens,
        headers: { Authorization: `Bearer ${secret}` }
      })
const status = async (call) => {
  const error = await refusal(call)
  return error.status ?? error.status_code
}

await run(
  openai ? "@langchain/openai" : "@langchain/ollama",
  openai ? "@langchain/openai" : "@langchain/ollama",
  {
    chat: async () => expect((await model().invoke(text)).usage_metadata.output_tokens > 0, "no usage"),
    stream: async () => expect((await collected(await model().stream(text))).length > 1, "not streamed"),
    tools: async () => {
      const { tool_calls } = await model("tools", key, 60).bindTools([tool]).invoke(text)
      expect(tool_calls[0].args.city === "Paris", "no call")
    },
    structured: async () => {
      const asked = model("plain", key, 60).withStructuredOutput(schema, {
        name: "answer",
        method: "jsonSchema"
      })
      expect("ab".includes((await asked.invoke(text)).kind), "not parsed")
    },
    embeddings: async () => {
      const embeddings = openai
        ? new OpenAIEmbeddings({
            model: "embed",
            apiKey: key,
            maxRetries: 0,
            configuration: { baseURL: `${url}/v1` }
          })
        : new OllamaEmbeddings({ model: "embed", baseUrl: url, headers: { Authorization: `Bearer ${key}` } })
      expect((await embeddings.embedDocuments(["one", "two"])).length === 2, "not two")
    },
    list: notOffered("it lists no models"),
    abort: async () => {
      // To leave the loop is not enough for @langchain/ollama: its request goes on.
      const leaving = new AbortController()
      const stream = await model("slow", key, 900).stream(text, { signal: leaving.signal })
      await refusal(async () => {
        for await (const _part of stream) leaving.abort()
      })
    },
    401: async () =>
      expect((await status(() => model("plain", wrongKey).invoke(text))) === 401, "another status"),
    403: async () =>
      expect((await status(() => model(forbiddenModel).invoke(text))) === 403, "another status"),
    413: async () =>
      expect((await status(() => model().invoke("x".repeat(300_000)))) === 413, "another status"),
    429: async () =>
      expect((await status(() => model("plain", limitedKey).invoke(text))) === 429, "another status"),
    "retry-after": openai
      ? async () => {
          const error = await refusal(() => model("plain", limitedKey).invoke(text))
          expect(Number(error.headers.get("retry-after")) >= 1, "no Retry-After")
        }
      : notOffered("its error has no headers")
  }
)
