/** What a program written for OpenAI's API meets when it is pointed at the gateway: the real `openai` package. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import OpenAI, { type ClientOptions } from "openai"
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod"
import { z } from "zod"
import { Registry } from "../src/admin/Registry.ts"
import { fake as wire } from "../test/support/FakeBackend.ts"
import { auditRow, Fake, Gateway, layerGateway, newKey } from "../test/support/Gateway.ts"
import { answered, collected, refused } from "./promised.ts"
import { atMost } from "../test/support/wait.ts"
import { inWorld } from "../test/support/testWith.ts"

const connect = Effect.fnUntraced(function* (secret: string, options: ClientOptions = { maxRetries: 0 }) {
  const { url } = yield* Gateway
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, ...options })
})

const messages = [{ role: "user" as const, content: "Hello" }]

/** `code` is a number here, where the package's types say text. */
const faceOf = ({ status, type, code }: InstanceType<typeof OpenAI.APIError>) => [status, type, code]

const weather = {
  type: "function" as const,
  function: {
    name: "weather",
    description: "The weather in a city",
    parameters: { type: "object", properties: { city: { type: "string" } } }
  }
}

inWorld(layerGateway())("the openai package", (test) => {
  test("when it chats, then it finds usage and the request id where it looks for them", function* () {
    const { secret, prefix } = yield* newKey()
    const client = yield* connect(secret)
    const chat = yield* answered(() => client.chat.completions.create({ model: "m", messages }))
    assert.match(chat.id, /^chatcmpl-.{20,}$/)
    assert.strictEqual(chat.object, "chat.completion")
    assert.strictEqual(chat.model, "m")
    assert.strictEqual(chat.choices[0]?.message.content, "Hello world!")
    assert.strictEqual(chat.choices[0]?.finish_reason, "stop")
    assert.deepStrictEqual(chat.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 })
    const row = yield* auditRow(chat._request_id ?? null)
    assert.deepInclude(row, { status: 200, tokens_in: 7n, tokens_out: 3n, key_prefix: prefix })
  })

  test("when it streams, then the role is first, the id is one, and the last chunk has finish and usage", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    for (const more of [{}, { stream_options: { include_usage: false } }]) {
      const chunks = yield* answered(async () =>
        collected(await client.chat.completions.create({ model: "m", messages, stream: true, ...more }))
      )
      assert.strictEqual(chunks[0]?.choices[0]?.delta.role, "assistant")
      assert.strictEqual(
        chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""),
        "Hello world!"
      )
      assert.strictEqual(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.created}`)).size, 1)
      const last = chunks.at(-1)
      assert.deepStrictEqual(last?.choices, [{ index: 0, delta: {}, finish_reason: "stop" }])
      assert.deepStrictEqual(last?.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 })
      assert.isTrue(chunks.slice(0, -1).every((chunk) => chunk.choices[0]?.finish_reason === null))
    }
  })

  test("when its .stream() helper checks every chunk, then all are right", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const runner = client.chat.completions.stream({ model: "m", messages })
    const deltas: Array<string> = []
    runner.on("content", (delta) => deltas.push(delta))
    const chat = yield* answered(() => runner.finalChatCompletion())
    assert.deepStrictEqual(deltas, ["Hello", " world", "!"])
    assert.strictEqual(chat.choices[0]?.message.content, "Hello world!")
    assert.strictEqual(chat.usage?.total_tokens, 10)
  })

  test("when the backend numbers two tool calls 0, then it gets two calls and sends their results back", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    const twoCalls = {
      does: "stream",
      lines: [
        wire.toolCall("weather", { city: "Bern" }),
        wire.toolCall("weather", { city: "Oslo" }),
        wire.done()
      ]
    } as const
    fake.script(twoCalls, twoCalls)
    const chunks = yield* answered(async () =>
      collected(
        await client.chat.completions.create({ model: "m", messages, tools: [weather], stream: true })
      )
    )
    const streamed = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? [])
    assert.deepStrictEqual(
      streamed.map((call) => call.index),
      [0, 1]
    )
    assert.strictEqual(chunks.at(-1)?.choices[0]?.finish_reason, "tool_calls")

    const final = yield* answered(() =>
      client.chat.completions.stream({ model: "m", messages, tools: [weather] }).finalMessage()
    )
    const calls = (final.tool_calls ?? []).flatMap((call) => (call.type === "function" ? [call] : []))
    assert.deepStrictEqual(
      calls.map((call) => call.function.arguments),
      ['{"city":"Bern"}', '{"city":"Oslo"}']
    )
    assert.strictEqual(new Set(calls.map((call) => call.id)).size, 2)

    const results = calls.map((call) => ({
      role: "tool" as const,
      tool_call_id: call.id,
      content: "12 degrees"
    }))
    const answer = yield* answered(() =>
      client.chat.completions.create({
        model: "m",
        tools: [weather],
        messages: [...messages, { role: "assistant", tool_calls: calls }, ...results]
      })
    )
    assert.strictEqual(answer.choices[0]?.message.content, "Hello world!")
    const sent = JSON.parse(fake.requests.at(-1)?.raw ?? "{}")
    assert.deepInclude(sent.messages[2], {
      role: "tool",
      tool_name: "weather",
      tool_call_id: calls[0]?.id
    })
    assert.deepStrictEqual(sent.messages[1].tool_calls[0].function.arguments, { city: "Bern" })
  })

  test("when it parses a structured answer, then by the schema the backend was given", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({
      does: "stream",
      lines: [wire.chat('{"city":"Bern",'), wire.chat('"c":12}'), wire.done()]
    })
    const Weather = z.object({ city: z.string(), c: z.number() })
    const chat = yield* answered(() =>
      client.chat.completions.parse({
        model: "m",
        messages,
        response_format: zodResponseFormat(Weather, "w")
      })
    )
    assert.deepStrictEqual(chat.choices[0]?.message.parsed, { city: "Bern", c: 12 })
    const { format } = JSON.parse(fake.requests.at(-1)?.raw ?? "{}")
    assert.deepStrictEqual(format.required, ["city", "c"])
  })

  test("when it completes a prompt, whole and streamed, then it gets the text", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const whole = yield* answered(() => client.completions.create({ model: "m", prompt: "Hello" }))
    assert.strictEqual(whole.choices[0]?.text, "Hello world!")
    assert.strictEqual(whole.usage?.total_tokens, 10)
    const chunks = yield* answered(async () =>
      collected(await client.completions.create({ model: "m", prompt: "Hello", stream: true }))
    )
    assert.strictEqual(chunks.map((chunk) => chunk.choices[0]?.text).join(""), "Hello world!")
    assert.strictEqual(chunks.at(-1)?.choices[0]?.finish_reason, "stop")
  })

  test("when it embeds, then base64, which it asks for by itself, gives the same numbers as float", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const embed = (more: { readonly encoding_format?: "float" | "base64" }) =>
      answered(() => client.embeddings.create({ model: "embedder", input: ["one", "two"], ...more }))
    const floats = yield* embed({ encoding_format: "float" })
    assert.deepStrictEqual(
      floats.data.map(({ index, embedding }) => [index, embedding.length]),
      [
        [0, 8],
        [1, 8]
      ]
    )
    assert.notDeepEqual(floats.data[0]?.embedding, floats.data[1]?.embedding)
    assert.deepStrictEqual(floats.usage, { prompt_tokens: 8, total_tokens: 8 })
    const decoded = yield* embed({})
    assert.deepStrictEqual(decoded.data, floats.data)
    // Asked for by name, it is handed over undecoded, whatever the package's types say.
    const encoded = yield* embed({ encoding_format: "base64" })
    const bytes = Buffer.from(String(encoded.data[0]?.embedding), "base64")
    assert.deepStrictEqual(
      floats.data[0]?.embedding,
      Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(i * 4))
    )
  })

  test("when it lists models, then it gets those of its key and no others", function* () {
    const { secret } = yield* newKey({ models: ["m", "not-installed"] })
    const client = yield* connect(secret)
    const models = yield* answered(async () => collected(await client.models.list()))
    assert.deepStrictEqual(
      models.map(({ id, object, owned_by }) => ({ id, object, owned_by })),
      [{ id: "m:latest", object: "model", owned_by: "tollgate" }]
    )
  })

  test("when it is refused, then it throws the class of each status, with type, code and request id", function* () {
    const { secret } = yield* newKey({ models: ["m"], rpm: 1 })
    const client = yield* connect(secret)
    const stranger = yield* connect(`tg_${"0".repeat(41)}`)
    const create = (with_: OpenAI, model: string, more = {}) =>
      refused(() => with_.chat.completions.create({ model, messages, ...more }))

    const unauthorized = yield* create(stranger, "m")
    assert.instanceOf(unauthorized, OpenAI.AuthenticationError)
    assert.deepStrictEqual<ReadonlyArray<unknown>>(faceOf(unauthorized), [401, "unauthorized", 401])

    const forbidden = yield* create(client, "other")
    assert.instanceOf(forbidden, OpenAI.PermissionDeniedError)
    assert.deepStrictEqual<ReadonlyArray<unknown>>(faceOf(forbidden), [403, "forbidden", 403])
    assert.strictEqual((yield* auditRow(forbidden.requestID ?? null))?.status, 403)

    const bad = yield* create(client, "m", { n: 2 })
    assert.instanceOf(bad, OpenAI.BadRequestError)
    assert.deepStrictEqual<ReadonlyArray<unknown>>(faceOf(bad), [400, "invalid_request", 400])
    assert.match(bad.message, /^400 n: /)

    yield* answered(() => client.chat.completions.create({ model: "m", messages }))
    const limited = yield* create(client, "m")
    assert.instanceOf(limited, OpenAI.RateLimitError)
    assert.deepStrictEqual<ReadonlyArray<unknown>>(faceOf(limited), [429, "rate_limit_exceeded", 429])
    assert.strictEqual(limited.message, "429 limit of 1 request per minute reached")
    assert.match(limited.headers?.get("retry-after") ?? "", /^[1-9]\d*$/)
  })

  test("when the backend fails before its first frame, then it throws a server error", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "answer", status: 500, body: '{"error":"cudaMalloc failed on /dev/nvidia0"}' })
    const error = yield* refused(() => client.chat.completions.create({ model: "m", messages, stream: true }))
    assert.instanceOf(error, OpenAI.InternalServerError)
    assert.deepInclude(error, {
      status: 502,
      type: "bad_gateway",
      message: "502 model backend unavailable"
    })
  })

  test("when the backend breaks in a stream, then it throws an APIError after the text that came", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.chat("Hel"), wire.error("llama runner has terminated")] })
    const seen: Array<string> = []
    const { data: stream, request_id } = yield* answered(() =>
      client.chat.completions.create({ model: "m", messages, stream: true }).withResponse()
    )
    const error = yield* refused(async () => {
      for await (const chunk of stream) seen.push(chunk.choices[0]?.delta.content ?? "")
    })
    assert.instanceOf(error, OpenAI.APIError)
    assert.strictEqual(error.type, "bad_gateway")
    assert.notInclude(error.message, "llama")
    assert.strictEqual(seen.join(""), "Hel")
    assert.deepInclude(yield* auditRow(request_id), { status: 502, error_type: "bad_gateway" })
  })

  test("when a budget is spent, then it gives up at once, although it retries everything else", function* () {
    const { secret, prefix } = yield* newKey()
    yield* Effect.flatMap(Registry, (registry) => registry.changeKey(prefix, { budgetDaily: 0 }))
    const client = yield* connect(secret, {})
    const started = performance.now()
    const error = yield* refused(() => client.chat.completions.create({ model: "m", messages }))
    assert.isBelow(performance.now() - started, atMost(2000))
    assert.instanceOf(error, OpenAI.RateLimitError)
    assert.deepInclude(error, { type: "budget_exceeded", message: "429 daily budget of 0 tokens is spent" })
    const sql = yield* SqlClient.SqlClient
    assert.lengthOf(yield* sql`SELECT 1 FROM audit_log WHERE key_prefix = ${prefix}`, 1)
  })
})

inWorld(layerGateway({ EXTRA_SURFACES: "responses" }))("the openai package, Responses", (test) => {
  test("when it asks, whole and streamed, then it reads text, usage and reasoning", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    const whole = yield* answered(() => client.responses.create({ model: "m", input: "Hello" }))
    assert.strictEqual(whole.output_text, "Hello world!")
    assert.deepInclude(whole.usage, { input_tokens: 7, output_tokens: 3, total_tokens: 10 })
    fake.script({
      does: "stream",
      lines: [wire.thinking("hm"), wire.chat("Hel"), wire.chat("lo"), wire.done()]
    })
    // The helper checks the order of the events.
    const stream = client.responses.stream({ model: "m", input: "Hello" })
    const deltas: Array<string> = []
    stream.on("response.output_text.delta", ({ delta }) => deltas.push(delta))
    const final = yield* answered(() => stream.finalResponse())
    assert.deepStrictEqual(deltas, ["Hel", "lo"])
    assert.strictEqual(final.output_text, "Hello")
    assert.deepStrictEqual(
      final.output.map(({ type }) => type),
      ["reasoning", "message"]
    )
  })

  test("when a tool is called, then the call is read, and it goes back with its result", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.toolCall("weather", { city: "Bern" }), wire.done()] })
    const tools = [{ type: "function" as const, ...weather.function, strict: false }]
    const input = [{ role: "user" as const, content: "Hello" }]
    const first = yield* answered(() => client.responses.create({ model: "m", input, tools }))
    const sentBack = first.output.flatMap((item): Array<OpenAI.Responses.ResponseInputItem> =>
      item.type === "function_call"
        ? [item, { type: "function_call_output", call_id: item.call_id, output: `12 in ${item.arguments}` }]
        : []
    )
    const second = yield* answered(() =>
      client.responses.create({ model: "m", input: [...input, ...sentBack], tools, stream: false })
    )
    assert.strictEqual(second.output_text, "Hello world!")
    const { messages: sent } = JSON.parse(fake.requests.at(-1)?.raw ?? "{}")
    assert.deepInclude(sent[2], { role: "tool", content: '12 in {"city":"Bern"}', tool_name: "weather" })
  })

  test("when it parses a structured answer, then by the schema the backend was given", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.chat('{"city":"Bern"}'), wire.done()] })
    const format = zodTextFormat(z.object({ city: z.string() }), "w")
    const parsed = yield* answered(() =>
      client.responses.parse({ model: "m", input: "Hello", text: { format } })
    )
    assert.deepStrictEqual(parsed.output_parsed, { city: "Bern" })
    assert.deepStrictEqual(JSON.parse(fake.requests.at(-1)?.raw ?? "{}").format.required, ["city"])
  })

  test("when an answer fails in the middle, then it is told so once, and refusals are errors of the package", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.chat("a"), wire.error("boom")] })
    const events = yield* answered(async () =>
      collected(await client.responses.create({ model: "m", input: "Hello", stream: true }))
    )
    assert.strictEqual(events.at(-1)?.type, "response.failed")
    const error = yield* refused(() =>
      client.responses.create({ model: "m", input: "Hello", previous_response_id: "resp_1" })
    )
    assert.deepStrictEqual(error instanceof OpenAI.BadRequestError ? faceOf(error) : error, [
      400,
      "invalid_request",
      400
    ])
  })
})
