/** LangChain JS, through both surfaces. */
import { assert, layer } from "@effect/vitest"
import type { EmbeddingsInterface } from "@langchain/core/embeddings"
import type { BaseChatModel } from "@langchain/core/language_models/chat_models"
import { HumanMessage } from "@langchain/core/messages"
import { ChatOllama, OllamaEmbeddings } from "@langchain/ollama"
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai"
import { Effect, Schema } from "effect"
import { Gateway, layerGateway, newKey } from "../support/Gateway.ts"
import { answered, collected } from "./promised.ts"
import { testWith } from "../support/testWith.ts"

const live = { excludeTestServices: true } as const

const openai = Effect.fnUntraced(function* (secret: string, model = "m") {
  const { url } = yield* Gateway
  return new ChatOpenAI({ model, apiKey: secret, maxRetries: 0, configuration: { baseURL: `${url}/v1` } })
})

const ollama = Effect.fnUntraced(function* (secret: string, model = "m") {
  const { url } = yield* Gateway
  return new ChatOllama({
    model,
    baseUrl: url,
    maxRetries: 0,
    keepAlive: "24h",
    numCtx: 2048,
    headers: { Authorization: `Bearer ${secret}` }
  })
})

const Usage = Schema.Struct({
  input_tokens: Schema.Finite,
  output_tokens: Schema.Finite,
  total_tokens: Schema.Finite
})

/** The package's type of it depends on the message's own type parameters; a chunk without one used nothing. */
const usageOf = ({ usage_metadata }: { readonly usage_metadata?: unknown }) =>
  usage_metadata === undefined
    ? { input_tokens: 0, output_tokens: 0, total_tokens: 0 }
    : Schema.decodeUnknownSync(Usage)(usage_metadata)

const packages: ReadonlyArray<
  readonly [string, (secret: string, model?: string) => Effect.Effect<BaseChatModel, never, Gateway>]
> = [
  ["@langchain/openai", openai],
  ["@langchain/ollama", ollama]
]

layer(layerGateway(), live)("LangChain", (it) => {
  const test = testWith(it.effect)

  for (const [name, connect] of packages) {
    test(`when ${name} invokes and streams, then it gets the backend's counts`, function* () {
      const { secret } = yield* newKey()
      const model = yield* connect(secret)
      const answer = yield* answered(() => model.invoke([new HumanMessage("Hello")]))
      assert.strictEqual(answer.text, "Hello world!")
      assert.deepStrictEqual(usageOf(answer), { input_tokens: 7, output_tokens: 3, total_tokens: 10 })
      const chunks = yield* answered(async () => collected(await model.stream("Hello")))
      assert.strictEqual(chunks.map((chunk) => chunk.text).join(""), "Hello world!")
      const total = chunks.reduce((sum, chunk) => sum + usageOf(chunk).total_tokens, 0)
      assert.strictEqual(total, 10)
    })
  }

  test("when queries and documents are embedded, then both surfaces give the same vectors", function* () {
    const [{ url }, { secret }] = [yield* Gateway, yield* newKey()]
    const both: ReadonlyArray<EmbeddingsInterface> = [
      new OpenAIEmbeddings({
        model: "embedder",
        apiKey: secret,
        maxRetries: 0,
        configuration: { baseURL: `${url}/v1` }
      }),
      new OllamaEmbeddings({
        model: "embedder",
        baseUrl: url,
        maxRetries: 0,
        headers: new Headers({ Authorization: `Bearer ${secret}` })
      })
    ]
    const [first, second] = yield* answered(() =>
      Promise.all(both.map((embeddings) => embeddings.embedDocuments(["one", "two"])))
    )
    assert.lengthOf(first ?? [], 2)
    assert.deepStrictEqual(second, first)
    const queries = yield* answered(() => Promise.all(both.map((embeddings) => embeddings.embedQuery("one"))))
    assert.deepStrictEqual(queries, [first?.[0], first?.[0]])
  })
})
