/** Random requests that a server and the gateway before it should answer alike; every one has a seed. */
import fc from "fast-check"
import type { JsonObject } from "../../src/domain/Inference.ts"
import { isObject } from "../../src/domain/json.ts"

export interface Case {
  readonly path: string
  readonly body: JsonObject
}

const some = <A>(arbitrary: fc.Arbitrary<A>) => fc.option(arbitrary, { nil: undefined })

/** Without the fields that are undefined. */
const record = (model: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<JsonObject> =>
  fc.record(model).map((value): JsonObject => JSON.parse(JSON.stringify(value)))

const phrase = fc.oneof(
  fc.constantFrom("hi", "Hello there", "größer 漢字 🙂", "what is 1+1?", "\n", "  spaced  ", "<|go|>", "a~"),
  fc.string({ minLength: 1, maxLength: 40, unit: "grapheme" })
)

const temperature = fc.constantFrom(0, 0.1, 0.7, 0.8, 1, 1.5)
const probability = fc.constantFrom(0.1, 0.5, 0.9, 1)
const stops = fc.uniqueArray(fc.constantFrom(" fox", " the", "zzz", " with grey", " 🙂"), {
  minLength: 1,
  maxLength: 3
})
const seed = fc.integer({ min: 1, max: 2 ** 31 - 1 })

const sampled = record({
  seed,
  num_predict: fc.integer({ min: 1, max: 60 }),
  temperature: some(temperature),
  top_k: some(fc.constantFrom(1, 5, 40, 100)),
  top_p: some(probability),
  min_p: some(fc.constantFrom(0, 0.05, 0.5)),
  typical_p: some(probability),
  repeat_last_n: some(fc.constantFrom(0, 16, 64)),
  repeat_penalty: some(fc.constantFrom(1, 1.1, 1.5)),
  presence_penalty: some(fc.constantFrom(-0.5, 0, 0.5)),
  frequency_penalty: some(fc.constantFrom(-0.5, 0, 0.5)),
  num_keep: some(fc.constantFrom(0, 4)),
  stop: some(stops)
})

/** Without a bound the server would go on for ever where sampling or a format keeps the model from its end. */
const unbounded = record({ seed, num_predict: some(fc.constant(-1)), temperature: fc.constant(1) })

const schema: JsonObject = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 12 },
    age: { type: "integer" },
    kind: { enum: ["a", "b", "c"] },
    ok: { type: "boolean" },
    list: { type: "array", items: { type: "number" }, maxItems: 3 }
  },
  required: ["name", "kind"]
}
const format = fc.constantFrom<string | JsonObject | undefined>(
  undefined,
  undefined,
  undefined,
  "",
  "json",
  schema
)

const weather: JsonObject = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] }
  }
}

const nativeTurn = fc.oneof(
  { weight: 6, arbitrary: record({ role: fc.constantFrom("user", "assistant", "system"), content: phrase }) },
  record({ role: fc.constant("tool"), content: phrase, tool_name: some(fc.constant("get_weather")) }),
  fc.constant<JsonObject>({
    role: "assistant",
    content: "",
    tool_calls: [{ function: { name: "get_weather", arguments: { city: "Paris", days: 2 } } }]
  })
)
const turns = (turn: fc.Arbitrary<JsonObject>) =>
  fc
    .tuple(fc.array(turn, { maxLength: 4 }), phrase)
    .map(([before, content]) => [...before, { role: "user", content }])

const chat = fc.oneof(
  {
    weight: 5,
    arbitrary: record({
      model: fc.constantFrom("plain", "plain:latest", "tiny"),
      messages: turns(nativeTurn),
      stream: some(fc.boolean()),
      format,
      options: sampled
    })
  },
  {
    weight: 3,
    arbitrary: record({
      model: fc.constantFrom("tools", "tiny"),
      messages: turns(nativeTurn),
      stream: some(fc.boolean()),
      tools: fc.constant([weather]),
      options: sampled
    })
  },
  {
    weight: 3,
    arbitrary: record({
      model: fc.constant("think"),
      messages: turns(nativeTurn),
      stream: some(fc.boolean()),
      think: some(fc.boolean()),
      options: sampled
    })
  }
)

const generate = fc.oneof(
  record({
    model: fc.constantFrom("plain", "think"),
    prompt: phrase,
    stream: some(fc.boolean()),
    options: unbounded
  }),
  {
    weight: 4,
    arbitrary: record({
      model: fc.constantFrom("plain", "tiny", "tools"),
      prompt: phrase,
      system: some(phrase),
      stream: some(fc.boolean()),
      format,
      options: sampled
    })
  },
  record({
    model: fc.constant("plain"),
    prompt: phrase,
    raw: fc.constant(true),
    stream: some(fc.boolean()),
    options: sampled
  }),
  record({
    model: fc.constant("fim"),
    prompt: phrase,
    suffix: some(phrase),
    stream: some(fc.boolean()),
    options: sampled
  }),
  record({
    model: fc.constant("think"),
    prompt: phrase,
    think: some(fc.boolean()),
    stream: some(fc.boolean()),
    options: sampled
  })
)

const texts = fc.oneof(phrase, fc.array(phrase, { minLength: 1, maxLength: 5 }))
const embed = record({
  model: fc.constantFrom("embed", "embed:latest"),
  input: texts,
  truncate: some(fc.boolean())
})
const embeddings = record({ model: fc.constant("embed"), prompt: phrase })

/** Ollama's OpenAI surface sets temperature and top_p where none is given, the gateway does not: always given here. */
const openaiSampling = {
  seed,
  max_tokens: fc.integer({ min: 1, max: 60 }),
  temperature,
  top_p: probability,
  frequency_penalty: some(fc.constantFrom(-0.5, 0, 0.5)),
  presence_penalty: some(fc.constantFrom(-0.5, 0, 0.5)),
  stop: some(fc.oneof(stops, fc.constant(" fox"))),
  stream: some(fc.boolean()),
  stream_options: fc.constant({ include_usage: true })
}

const openaiTurn = record({ role: fc.constantFrom("user", "assistant", "system"), content: phrase })
const openaiChat = fc.oneof(
  {
    weight: 3,
    arbitrary: record({
      model: fc.constantFrom("plain", "tiny"),
      messages: turns(openaiTurn),
      ...openaiSampling
    })
  },
  record({
    model: fc.constantFrom("tools", "tiny"),
    messages: turns(openaiTurn),
    tools: fc.constant([weather]),
    ...openaiSampling
  }),
  record({
    model: fc.constant("plain"),
    messages: turns(openaiTurn),
    response_format: fc.constantFrom(
      { type: "json_object" },
      { type: "json_schema", json_schema: { name: "person", schema } }
    ),
    ...openaiSampling
  })
)
const openaiCompletion = record({
  model: fc.constantFrom("plain", "fim"),
  prompt: phrase,
  ...openaiSampling
})
const openaiEmbeddings = record({
  model: fc.constant("embed"),
  input: texts,
  encoding_format: fc.constant("float")
})

/** What both refuse. */
const refused: fc.Arbitrary<Case> = fc.constantFrom(
  { path: "/api/chat", body: { model: "nobody", messages: [{ role: "user", content: "x" }] } },
  { path: "/api/chat", body: { model: "embed", messages: [{ role: "user", content: "x" }] } },
  {
    path: "/api/chat",
    body: { model: "plain", messages: [{ role: "user", content: "x" }], tools: [weather] }
  },
  { path: "/api/chat", body: { model: "plain", messages: [{ role: "user", content: "x" }], think: true } },
  { path: "/api/chat", body: { model: "plain", messages: [{ role: "user", content: ["x"] }] } },
  { path: "/api/generate", body: { model: "plain", prompt: "x", suffix: "y" } },
  { path: "/api/generate", body: { model: "plain", prompt: "x", raw: true, system: "y" } },
  { path: "/api/generate", body: { model: "plain", prompt: 5 } },
  { path: "/api/generate", body: { model: "plain", prompt: "x", format: "xml" } },
  { path: "/api/generate", body: { model: "plain", prompt: "x", options: { temperature: "hot" } } },
  { path: "/api/embed", body: { model: "nobody", input: "x" } },
  { path: "/api/embed", body: { model: "embed", input: 5 } },
  { path: "/v1/chat/completions", body: { model: "nobody", messages: [{ role: "user", content: "x" }] } },
  { path: "/v1/chat/completions", body: { model: "plain", messages: [] } },
  { path: "/v1/embeddings", body: { model: "embed" } }
)

const at = (path: string, body: fc.Arbitrary<JsonObject>): fc.Arbitrary<Case> =>
  body.map((body) => ({ path, body }))

/** Whether the server ends a generated text by a bound of the request. */
export const isBounded = ({ body: { options } }: Case): boolean =>
  !isObject(options) || options["seed"] === undefined || Number(options["num_predict"]) > 0

export const anyCase: fc.Arbitrary<Case> = fc.oneof(
  { weight: 38, arbitrary: at("/api/chat", chat) },
  { weight: 26, arbitrary: at("/api/generate", generate) },
  { weight: 7, arbitrary: at("/api/embed", embed) },
  { weight: 3, arbitrary: at("/api/embeddings", embeddings) },
  { weight: 12, arbitrary: at("/v1/chat/completions", openaiChat) },
  { weight: 5, arbitrary: at("/v1/completions", openaiCompletion) },
  { weight: 3, arbitrary: at("/v1/embeddings", openaiEmbeddings) },
  { weight: 6, arbitrary: refused }
)
