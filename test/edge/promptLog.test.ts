import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Effect, Fiber, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { sweep } from "../../src/promptlog/PromptLog.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  firstFrames,
  hello,
  layerGateway,
  newKey,
  rowOf
} from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

interface Logged {
  readonly prompt: string
  readonly answer: string
  readonly truncated: boolean
  readonly endpoint: string
  readonly days: number
}

const logged = Effect.fnUntraced(function* (requestId: string | null) {
  const rows = yield* sql<Logged>`SELECT prompt, answer, truncated, endpoint,
    round(extract(epoch FROM expires_at - now()) / 86400)::integer AS days
    FROM prompt_log WHERE request_id = ${requestId}::text::uuid`
  return rows[0]
})

const isLogged = (requestId: string | null) => eventually(logged(requestId), (row) => row !== undefined)

/** Every table, of the catalogue too, that holds `text` in any column of any row. */
const tablesWith = Effect.fnUntraced(function* (text: string) {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql<{ readonly name: string }>`SELECT quote_ident(table_name) AS name
    FROM information_schema.tables WHERE table_schema = 'public'`
  const found: Array<string> = []
  for (const { name } of tables) {
    const rows = yield* sql<{
      readonly n: number
    }>`SELECT count(*)::integer AS n FROM ${sql.literal(name)} t WHERE strpos(t::text, ${text}) > 0`
    if ((rows[0]?.n ?? 0) > 0) found.push(name)
  }
  return found
})

const optIn = Effect.fnUntraced(function* (prefix: string, retentionDays?: number) {
  const registry = yield* Registry
  yield* registry.changeKey(prefix, {
    promptLog: true,
    ...(retentionDays === undefined ? {} : { promptLogDays: retentionDays })
  })
})

const Messages = Schema.fromJsonString(
  Schema.Struct({ messages: Schema.Array(Schema.Struct({ role: Schema.String, content: Schema.String })) })
)

const said = (marker: string, more: Readonly<Record<string, unknown>> = {}) =>
  hello({ messages: [{ role: "user", content: `say ${marker}` }], ...more })

inWorld(layerGateway({ PROMPT_LOG_DEFAULT_RETENTION_DAYS: "12" }))("the prompt log", (test) => {
  test("when a key has not opted in, then nothing of its prompts is anywhere in the database", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const [asked, answered] = ["marker-asked-8c1f", "marker-answered-77d2"]
    for (const [path, body] of [
      ["/api/chat", said(asked)],
      ["/api/chat", said(asked, { stream: false })],
      ["/api/generate", { model: "m", prompt: asked, system: asked }],
      ["/v1/chat/completions", said(asked, { stream: true })],
      ["/v1/completions", { model: "m", prompt: asked }],
      ["/api/embed", { model: "embedder", input: asked }],
      ["/api/embeddings", { model: "embedder", prompt: asked }],
      ["/v1/embeddings", { model: "embedder", input: [asked] }],
      ["/api/chat", said(asked, { model: "not-there" })],
      ["/api/chat", `{"model": "m", "messages": "${asked}"`]
    ] as const) {
      const kind = path === "/api/generate" || path === "/v1/completions" ? "generate" : "chat"
      const streams = !path.includes("embed") && !JSON.stringify(body).includes("not-there")
      if (streams && typeof body !== "string")
        fake.script({ does: "stream", lines: [wire[kind](answered), wire.done(kind)] })
      yield* rowOf(yield* call(path, { secret, body }))
    }
    assert.deepStrictEqual(yield* tablesWith(asked), [])
    assert.deepStrictEqual(yield* tablesWith(answered), [])

    // The search finds what is there.
    const other = yield* newKey()
    yield* optIn(other.prefix)
    fake.script({ does: "stream", lines: [wire.chat(answered), wire.done()] })
    const { headers } = yield* call("/api/chat", { secret: other.secret, body: said(asked) })
    yield* isLogged(headers.get("x-request-id"))
    assert.deepStrictEqual(yield* tablesWith(asked), ["prompt_log"])
    assert.deepStrictEqual(yield* tablesWith(answered), ["prompt_log"])
  })

  test("when a key has opted in, then prompt and answer of every dialect are kept, with thinking and tool calls, streamed or not", function* () {
    const fake = yield* Fake
    const { secret, prefix } = yield* newKey()
    yield* optIn(prefix, 3)
    for (const [path, kind, body] of [
      ["/api/chat", "chat", said("one")],
      ["/v1/chat/completions", "chat", said("one", { stream: false })],
      ["/api/generate", "generate", { model: "m", prompt: "say one" }],
      ["/v1/completions", "generate", { model: "m", prompt: "say one", stream: true }],
      // Of an embedding the text is kept, and its vectors are not.
      ["/api/embed", "embed", { model: "embedder", input: ["say one", "say two"] }],
      ["/api/embeddings", "embed", { model: "embedder", prompt: "say one" }],
      ["/v1/embeddings", "embed", { model: "embedder", input: "say one" }]
    ] as const) {
      if (kind !== "embed")
        fake.script({ does: "stream", lines: [wire[kind]("It is "), wire[kind]("one"), wire.done(kind)] })
      const { headers, status } = yield* call(path, { secret, body })
      assert.strictEqual(status, 200)
      const row = yield* isLogged(headers.get("x-request-id"))
      const answer = kind === "embed" ? "" : "It is one"
      assert.deepInclude(row, { answer, truncated: false, endpoint: path, days: 3 })
      assert.include(row?.prompt, "say one")
      if (kind === "chat") {
        const { messages } = yield* Schema.decodeUnknownEffect(Messages)(row?.prompt)
        assert.deepStrictEqual(messages, [{ role: "user", content: "say one" }])
      }
    }
    fake.script({
      does: "stream",
      lines: [
        wire.thinking("hm, "),
        wire.thinking("well"),
        wire.chat("so"),
        wire.toolCall("f", { a: 1 }),
        wire.done()
      ]
    })
    const { headers } = yield* call("/api/chat", { secret, body: said("x\u0000y") })
    const row = yield* isLogged(headers.get("x-request-id"))
    assert.strictEqual(
      row?.answer,
      `<think>hm, well</think>\nso{"tool_calls":[{"name":"f","arguments":{"a":1}}]}\n`
    )
  })

  test("when a client leaves, then what it had got is kept", function* () {
    const fake = yield* Fake
    const { secret, prefix } = yield* newKey()
    yield* optIn(prefix)
    const calls = fake.requests.length
    fake.script({ does: "stream", lines: [wire.chat("so far")], ends: "hang" })
    const before = yield* firstFrames
    const asked = yield* Effect.forkChild(call("/api/chat", { secret, body: said("leaving") }))
    yield* fake.until(() => fake.requests.length > calls)
    yield* eventually(firstFrames, (count) => count > before)
    yield* Fiber.interrupt(asked)
    const kept = sql`SELECT l.answer, a.status FROM prompt_log l JOIN audit_log a USING (request_id)
        WHERE a.key_prefix = ${prefix}`
    assert.deepStrictEqual(yield* eventually(kept, ({ length }) => length > 0), [
      { answer: "so far", status: 499 }
    ])
  })

  test("when it cannot be written, then answers go on, and what is lost is counted", function* () {
    const { secret, prefix } = yield* newKey()
    yield* optIn(prefix)
    yield* sql`ALTER TABLE prompt_log RENAME TO prompt_log_away`
    const { status, text } = yield* call("/api/chat", { secret, body: said("m", { stream: false }) })
    assert.strictEqual(status, 200)
    assert.include(text, "Hello world!")
    const metrics = yield* eventually(call("/metrics"), ({ text }) =>
      /^tollgate_prompt_log_dropped_total [1-9]/m.test(text)
    )
    assert.match(metrics.text, /^tollgate_prompt_log_dropped_total 1$/m)
    yield* sql`ALTER TABLE prompt_log_away RENAME TO prompt_log`
    const { headers } = yield* call("/api/chat", { secret, body: said("m") })
    assert.isDefined(yield* isLogged(headers.get("x-request-id")))
  })

  test("when entries have expired, then the sweeper deletes them in small batches, and nothing else", function* () {
    const [sql, pg] = [yield* SqlClient.SqlClient, yield* PgClient.PgClient]
    const { prefix } = yield* newKey()
    yield* sql`DELETE FROM prompt_log`
    yield* sql`INSERT INTO prompt_log (request_id, key_id, expires_at, endpoint, prompt, answer)
        SELECT gen_random_uuid(), k.id, now() + make_interval(hours => n), '/api/chat', n::text, ''
        FROM api_keys k, generate_series(-24, 5) AS n WHERE k.prefix = ${prefix}`
    assert.strictEqual(yield* sweep(pg, 10), 25)
    const left = yield* sql<{ readonly n: number }>`SELECT count(*)::integer AS n FROM prompt_log`
    assert.strictEqual(left[0]?.n, 5)
    assert.strictEqual(yield* sweep(pg, 10), 0)
  })
})
