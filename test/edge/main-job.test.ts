/** The main job from end to end: a key is made, used by real clients, accounted for, and taken away. */
import { assert } from "@effect/vitest"
import { Effect, Fiber, Schema } from "effect"
import { Ollama } from "ollama"
import OpenAI from "openai"
import { tollgateBeside } from "../cli/inProcess.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  firstFrames,
  Gateway,
  hello,
  layerGateway,
  modelSpeaks,
  newKey
} from "../support/Gateway.ts"
import { makeStopwatch, ownTimeMs, atMost } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** A command as an operator gives it; its standard output. */
const tollgate = (...args: ReadonlyArray<string>) =>
  Effect.map(tollgateBeside(...args), ({ code, stdout, stderr }) => {
    assert.strictEqual(code, 0, stderr)
    return stdout.trim()
  })

const Usage = Schema.fromJsonString(
  Schema.Struct({ requests: Schema.Finite, tokens_in: Schema.Finite, tokens_out: Schema.Finite })
)

inWorld(layerGateway({ EXTRA_SURFACES: "responses,messages" }))("the main job", (test) => {
  test("when a command makes a key, then real clients are served, counted to the token, and refused after its revocation", function* () {
    const { url } = yield* Gateway
    yield* tollgate("create-tenant", "--name", "team", "--allow-all-models")
    const secret = yield* tollgate("create-key", "--tenant", "team", "--name", "laptop")
    assert.match(secret, /^tg_[0-9A-Za-z]{41}$/)
    const prefix = secret.slice(0, 12)
    const counted: Array<{ readonly input: number; readonly output: number }> = []

    const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
    const messages = [{ role: "user" as const, content: "Hello" }]
    const said = yield* Effect.promise(async () => {
      let text = ""
      for await (const chunk of await openai.chat.completions.create({
        model: "m",
        messages,
        stream: true
      })) {
        text += chunk.choices[0]?.delta.content ?? ""
        if (chunk.usage)
          counted.push({ input: chunk.usage.prompt_tokens, output: chunk.usage.completion_tokens })
      }
      const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${secret}` } })
      for await (const frame of await ollama.chat({ model: "m", messages, stream: true })) {
        text += frame.message.content
        if (frame.done) counted.push({ input: frame.prompt_eval_count, output: frame.eval_count })
      }
      return text
    })
    assert.strictEqual(said, "Hello world!Hello world!")
    assert.lengthOf(counted, 2)

    const usage = yield* tollgate("show-usage", "--tenant", "team", "--period", "day", "--json")
    assert.deepInclude(yield* Schema.decodeEffect(Usage)(usage), {
      requests: 2,
      tokens_in: counted.reduce((sum, { input }) => sum + input, 0),
      tokens_out: counted.reduce((sum, { output }) => sum + output, 0)
    })
    const rows = yield* sql`SELECT status, tokens_in, tokens_out FROM audit_log WHERE key_prefix = ${prefix}`
    assert.deepStrictEqual(
      rows,
      [0, 1].map(() => ({ status: 200, tokens_in: 7n, tokens_out: 3n }))
    )
    assert.lengthOf(yield* sql`SELECT 1 FROM intents WHERE key_prefix = ${prefix}`, 0)

    yield* tollgate("revoke-key", "--prefix", prefix)
    const revoked = makeStopwatch()
    const last = yield* eventually(call("/api/version", { secret }), ({ status }) => status === 401)
    assert.strictEqual(last.status, 401)
    assert.isBelow(revoked(), atMost(1000))
    assert.strictEqual((yield* call("/api/chat", { secret, body: hello() })).status, 401)
  })

  const frames = [wire.chat("Hel"), wire.chat("lo")]
  const leavings = [
    ["mid-stream", "/api/chat", hello(), frames],
    ["mid-stream", "/v1/chat/completions", hello({ stream: true }), frames],
    ["mid-stream", "/api/generate", { model: "m", prompt: "Hello" }, [wire.generate("a")]],
    // Without a byte of an answer, the client has only its own socket to close.
    ["while its one object is made", "/api/chat", hello({ stream: false }), frames],
    ["before the first frame", "/api/chat", hello(), []],
    ["before the first frame", "/v1/chat/completions", hello(), []],
    ["before its answer", "/api/show", { model: "m" }, []],
    ["before its answer", "/api/embed", { model: "embedder", input: "a" }, []],
    ["before the first frame", "/v1/responses", { model: "m", input: "a", stream: true }, []],
    ["before the first frame", "/v1/messages", { ...hello({ stream: true }), max_tokens: 9 }, []]
  ] as const
  for (const [when, path, body, lines] of leavings) {
    test(`when a client of ${path} leaves ${when}, then backend and slot are free within 100 ms, and the request is charged`, function* () {
      const fake = yield* Fake
      const { secret, prefix } = yield* newKey({ concurrent: 1 })
      // What a model that speaks has generated before its first token is nothing.
      if (lines.length === 0) yield* modelSpeaks
      const [calls, before] = [fake.requests.length, yield* firstFrames]
      fake.script({ does: "stream", lines, ends: "hang" })
      const asked = yield* Effect.forkChild(call(path, { secret, body }))
      const length = lines.map((line) => `${JSON.stringify(line)}\n`).join("").length
      yield* fake.until(() => fake.requests.length > calls && fake.requests.at(-1)?.written === length)
      // Written is not yet read: the gateway has to have seen the frames before it is left.
      if (length > 0) yield* eventually(firstFrames, (count) => count > before)
      const left = ownTimeMs()
      yield* Fiber.interrupt(asked)
      const backendCall = fake.requests.at(-1)
      yield* fake.until(() => backendCall?.closedAt !== undefined)
      assert.isBelow((backendCall?.closedAt ?? Infinity) - left, atMost(100))

      const again = call("/api/chat", { secret, body: hello({ stream: false }) })
      const { status } = yield* eventually(again, ({ status }) => status !== 429, atMost(300))
      assert.strictEqual(status, 200)

      const rows = yield* eventually(
        sql<{ readonly tokens: number; readonly error_type: string; readonly usage_source: string }>`
              SELECT (tokens_in + tokens_out)::int AS tokens, error_type, usage_source FROM audit_log
              WHERE key_prefix = ${prefix} AND status = 499`,
        (rows) => rows.length > 0
      )
      assert.strictEqual(rows[0]?.error_type, "client_closed_request")
      if (path === "/api/show") assert.strictEqual(rows[0]?.tokens, 0)
      // No token came: the question alone, which for a chat of one word is 10.
      else if (lines.length === 0 && "messages" in body && !("max_tokens" in body))
        assert.deepInclude(rows[0], { tokens: 10, usage_source: "estimated" })
      else if (lines.length === 0) assert.isAbove(rows[0]?.tokens ?? 0, 0)
      // By estimate, and as many frames as were seen.
      else assert.deepInclude(rows[0], { tokens: 10 + lines.length, usage_source: "counted" })
    })
  }
})
