/** What a program written for Ollama meets when it is pointed at the gateway: the real `ollama` package. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Ollama } from "ollama"
import { SqlClient } from "effect/sql"
import { fake as wire } from "../test/support/FakeBackend.ts"
import { auditRow, eventually, Fake, Gateway, layerGateway, newKey } from "../test/support/Gateway.ts"
import { version } from "../src/version.ts"
import { answered, collected, refused } from "./promised.ts"
import { inWorld } from "../test/support/testWith.ts"

const connect = Effect.fnUntraced(function* (secret: string) {
  const { url } = yield* Gateway
  return new Ollama({ host: url, headers: { Authorization: `Bearer ${secret}` } })
})

const messages = [{ role: "user", content: "Hello" }]

/** The row of a key's only request. */
const onlyRow = Effect.fnUntraced(function* (prefix: string) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly request_id: string }>`
    SELECT request_id::text FROM audit_log WHERE key_prefix = ${prefix}`
  assert.isAtMost(rows.length, 1)
  return yield* auditRow(rows[0]?.request_id ?? null)
})

inWorld(layerGateway())("the ollama package", (test) => {
  test("when it chats, whole and streamed, then it has the counts of the final frame", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const whole = yield* answered(() => client.chat({ model: "m", messages }))
    assert.deepInclude(whole, { model: "m", done: true, done_reason: "stop", eval_count: 3 })
    assert.deepStrictEqual(whole.message, { role: "assistant", content: "Hello world!" })
    const frames = yield* answered(async () =>
      collected(await client.chat({ model: "m", messages, stream: true }))
    )
    assert.strictEqual(frames.map((frame) => frame.message.content).join(""), "Hello world!")
    assert.deepStrictEqual(
      frames.map((frame) => frame.done),
      [false, false, false, true]
    )
    assert.deepInclude(frames.at(-1), { prompt_eval_count: 7, eval_count: 3, done_reason: "stop" })
  })

  test("when it generates, whole and streamed, then it has the text", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const whole = yield* answered(() => client.generate({ model: "m", prompt: "Hello" }))
    assert.strictEqual(whole.response, "Hello world!")
    const frames = yield* answered(async () =>
      collected(await client.generate({ model: "m", prompt: "Hello", stream: true }))
    )
    assert.strictEqual(frames.map((frame) => frame.response).join(""), "Hello world!")
    assert.deepInclude(frames.at(-1), { done: true, prompt_eval_count: 7, eval_count: 3 })
  })

  test("when it calls tools and asks for a format, then the backend gets both unchanged", function* () {
    const [{ secret }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.toolCall("weather", { city: "Bern" }), wire.done()] })
    const tool = { type: "function", function: { name: "weather", description: "The weather" } }
    const schema = { type: "object", properties: { city: { type: "string" } } }
    const answer = yield* answered(() =>
      client.chat({ model: "m", messages, tools: [tool], format: schema, keep_alive: "24h" })
    )
    assert.deepStrictEqual(answer.message.tool_calls?.[0]?.function.arguments, { city: "Bern" })
    const sent = JSON.parse(fake.requests.at(-1)?.raw ?? "{}")
    assert.deepStrictEqual(sent.tools, [tool])
    assert.deepStrictEqual(sent.format, schema)
    assert.notProperty(sent, "keep_alive")
  })

  test("when it embeds one text or several, or in the older way, then it gets vectors", function* () {
    const { secret } = yield* newKey()
    const client = yield* connect(secret)
    const one = yield* answered(() => client.embed({ model: "embedder", input: "one" }))
    const two = yield* answered(() => client.embed({ model: "embedder", input: ["one", "two"] }))
    assert.strictEqual(one.model, "embedder")
    assert.lengthOf(two.embeddings, 2)
    assert.deepStrictEqual(two.embeddings[0], one.embeddings[0])
    assert.strictEqual(two.prompt_eval_count, 8)
    const older = yield* answered(() => client.embeddings({ model: "embedder", prompt: "one" }))
    assert.deepStrictEqual(older.embedding, one.embeddings[0])
  })

  test("when it lists models, then they are those of its key, and the version is the gateway's", function* () {
    const { secret } = yield* newKey({ models: ["m", "not-installed"] })
    const client = yield* connect(secret)
    const { models } = yield* answered(() => client.list())
    assert.deepStrictEqual(
      models.map((model) => model.name),
      ["m:latest"]
    )
    assert.strictEqual(models[0]?.details.family, "demo")
    assert.strictEqual((yield* answered(() => client.version())).version, version)
  })

  test("when a stream breaks, then it throws after the frames that came", function* () {
    const [{ secret, prefix }, fake] = [yield* newKey(), yield* Fake]
    const client = yield* connect(secret)
    fake.script({ does: "stream", lines: [wire.chat("Hel"), wire.error("llama runner has terminated")] })
    const seen: Array<string> = []
    const error = yield* refused(async () => {
      for await (const frame of await client.chat({ model: "m", messages, stream: true })) {
        seen.push(frame.message.content)
      }
    })
    assert.instanceOf(error, Error)
    assert.strictEqual(error.message, "model backend unavailable")
    assert.deepStrictEqual(seen, ["Hel"])
    const row = yield* eventually(onlyRow(prefix), (row) => row !== undefined)
    assert.deepInclude(row, { status: 502, error_type: "bad_gateway" })
  })

  test("when it is refused with 401 or 403, then the error it throws has status and type", function* () {
    const { secret } = yield* newKey({ models: ["m"] })
    const [client, stranger] = [yield* connect(secret), yield* connect("not-a-key")]
    const unauthorized = yield* refused(() => stranger.chat({ model: "m", messages }))
    // The package hands on `error` as it came, here the object of the specification.
    const error = { message: "unauthorized", type: "unauthorized", code: 401 }
    assert.deepInclude(unauthorized, { name: "ResponseError", status_code: 401, error })
    const hidden = yield* refused(() => client.chat({ model: "other", messages }))
    const missing = yield* refused(() => client.generate({ model: "never-heard-of", prompt: "Hello" }))
    const forbidden = { message: "forbidden", type: "forbidden", code: 403 }
    assert.deepInclude(hidden, { status_code: 403, error: forbidden })
    assert.deepInclude(missing, { status_code: 403, error: forbidden })
    assert.deepInclude(yield* refused(() => client.delete({ model: "m" })), {
      status_code: 403,
      error: forbidden
    })
    assert.deepInclude(yield* refused(() => client.ps()), { status_code: 403, error: forbidden })
  })
})
