/** For whom a request is, as the audit says, over two replicas that share their stores. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import OpenAI from "openai"
import { TestConsole } from "effect/testing"
import { mintKey } from "../../src/domain/Key.ts"
import { tollgateHere } from "../cli/inProcess.ts"
import { call, eventually, Fake, Gateway, hello, layerGateway, layerGatewayOn } from "../support/Gateway.ts"

const live = { excludeTestServices: true } as const

const tollgate = (...args: ReadonlyArray<string>) =>
  tollgateHere(...args).pipe(Effect.provide(TestConsole.layer))

let serial = 0

/** A key that a command makes, as an operator does. */
const keyWith = Effect.fnUntraced(function* (...flags: ReadonlyArray<string>) {
  const tenant = `users-${++serial}`
  yield* tollgate("create-tenant", "--name", tenant, "--allow-all-models", "--rpm", "10000")
  const { stdout } = yield* tollgate("create-key", "--tenant", tenant, "--name", "k", ...flags)
  return stdout.trim()
})

const endUserOf = Effect.fnUntraced(function* (answer: { readonly headers: Headers }) {
  const sql = yield* SqlClient.SqlClient
  const id = answer.headers.get("x-request-id")
  const rows = yield* eventually(
    sql<{ readonly end_user: string | null }>`
      SELECT end_user FROM audit_log WHERE request_id = ${id}::text::uuid`,
    (rows) => rows.length === 1
  )
  return rows[0]?.end_user
})

const header = "X-OpenWebUI-User-Email"

layer(layerGateway(), live)("the end user", (it) => {
  it.effect(
    "when a request of the OpenAI surface names its user, then the audit has it, and the model server does not",
    () =>
      Effect.gen(function* () {
        const [{ url }, backend] = [yield* Gateway, yield* Fake]
        const secret = yield* keyWith()
        const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
        const messages = [{ role: "user" as const, content: "Hello" }]
        const answers = [
          yield* Effect.promise(() =>
            client.chat.completions.create({ model: "m", messages, user: " ann\n" }).withResponse()
          ),
          yield* Effect.promise(() =>
            client.chat.completions
              .create({ model: "m", messages, user: "cache-7", safety_identifier: "ann" })
              .withResponse()
          ),
          yield* Effect.promise(() =>
            client.completions.create({ model: "m", prompt: "x", user: "ann" }).withResponse()
          ),
          yield* Effect.promise(() =>
            client.embeddings.create({ model: "embedder", input: "x", user: "ann" }).withResponse()
          )
        ]
        for (const { response } of answers) assert.strictEqual(yield* endUserOf(response), "ann")
        for (const { raw } of backend.requests) assert.notInclude(raw, "ann")
        const metrics = yield* call("/metrics")
        assert.notInclude(metrics.text, "ann")
      })
  )

  it.effect(
    "when the key names a header, then it says the user on every endpoint, a field wins, and other keys ignore it",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const [named, plain] = [yield* keyWith("--end-user-header", header), yield* keyWith()]
        const headers = { [header]: Buffer.from("jörg@example.org").toString("latin1") }
        const asked = { secret: named, headers }
        assert.strictEqual(yield* endUserOf(yield* call("/api/tags", asked)), "jörg@example.org")
        assert.strictEqual(
          yield* endUserOf(yield* call("/api/chat", { ...asked, body: hello() })),
          "jörg@example.org"
        )
        const openai = (body: Readonly<Record<string, unknown>>) =>
          call("/v1/chat/completions", { ...asked, body: hello(body) })
        assert.strictEqual(yield* endUserOf(yield* openai({ user: "ann" })), "ann")
        assert.strictEqual(yield* endUserOf(yield* openai({ user: " " })), "jörg@example.org")
        const refused = yield* openai({ user: 5 })
        assert.deepStrictEqual([refused.status, yield* endUserOf(refused)], [400, "jörg@example.org"])
        assert.isNull(yield* endUserOf(yield* call("/api/tags", { secret: plain, headers })))
        assert.isTrue(
          backend.requests.every((request) => request.headers[header.toLowerCase()] === undefined)
        )
      })
  )

  it.effect("when a claim holds a key or control characters, then the audit has neither", () =>
    Effect.gen(function* () {
      const secret = yield* keyWith("--end-user-header", header)
      const leaked = mintKey("tg_")
      const stored = yield* endUserOf(
        yield* call("/v1/chat/completions", {
          secret,
          body: hello({ user: `\u001b[2J${leaked}${"x".repeat(500)}` })
        })
      )
      assert.notInclude(stored ?? "", leaked.slice(12))
      assert.notMatch(stored ?? "", /\p{Cc}/u)
      assert.isAtMost(stored?.length ?? 0, 128)
    })
  )

  it.effect(
    "when the header is changed by a command, then every replica uses the new one within about a second",
    () =>
      Effect.gen(function* () {
        const other = Context.get(yield* Layer.build(Layer.fresh(layerGatewayOn())), Gateway)
        const secret = yield* keyWith("--end-user-header", header)
        const asked = { secret, headers: { [header]: "mail", "X-User": "id" } }
        const onBoth = Effect.all([
          Effect.flatMap(call("/api/tags", asked), endUserOf),
          Effect.flatMap(Effect.provideService(call("/api/tags", asked), Gateway, other), endUserOf)
        ])
        assert.deepStrictEqual(yield* onBoth, ["mail", "mail"])
        const prefix = secret.slice(0, 12)
        const set = yield* tollgate("set-end-user", "--key", prefix, "--header", "X-User")
        assert.strictEqual(set.code, 0, set.stderr)
        assert.deepStrictEqual(yield* eventually(onBoth, (found) => found.every((user) => user === "id")), [
          "id",
          "id"
        ])
        yield* tollgate("set-end-user", "--key", prefix, "--header", "none")
        assert.deepStrictEqual(yield* eventually(onBoth, (found) => found.every((user) => user === null)), [
          null,
          null
        ])
      }).pipe(Effect.scoped)
  )

  it.effect(
    "when a header would carry credentials or is no name of a header, then the command refuses it",
    () =>
      Effect.gen(function* () {
        const secret = yield* keyWith()
        const prefix = secret.slice(0, 12)
        for (const name of ["Authorization", "cookie", "X-Api-Key", "X User", "", "x".repeat(65), "X:Y"]) {
          const ran = yield* tollgate("set-end-user", "--key", prefix, "--header", name)
          assert.notStrictEqual(ran.code, 0, name)
          assert.match(ran.stderr, /carries no credentials/, name)
        }
      })
  )
})
