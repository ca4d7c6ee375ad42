/** For whom a request is, as the audit says. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import OpenAI from "openai"
import { tollgateBeside } from "../cli/inProcess.ts"
import { call, Fake, Gateway, hello, layerGateway, rowOf } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

let serial = 0

/** A key that a command makes, as an operator does. */
const keyWith = Effect.fnUntraced(function* (...flags: ReadonlyArray<string>) {
  const tenant = `users-${++serial}`
  yield* tollgateBeside("create-tenant", "--name", tenant, "--allow-all-models", "--rpm", "10000")
  const { stdout } = yield* tollgateBeside("create-key", "--tenant", tenant, "--name", "k", ...flags)
  return stdout.trim()
})

const endUserOf = (answer: { readonly headers: Headers }) => Effect.map(rowOf(answer), (row) => row?.end_user)

const header = "X-OpenWebUI-User-Email"

inWorld(layerGateway())("the end user", (test) => {
  test("when a request of the OpenAI surface names its user, then the audit has it, and the model server does not", function* () {
    const [{ url }, backend] = [yield* Gateway, yield* Fake]
    const secret = yield* keyWith()
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: secret, maxRetries: 0 })
    const messages = [{ role: "user" as const, content: "Hello" }]
    const answers = yield* Effect.promise(() =>
      Promise.all([
        client.chat.completions.create({ model: "m", messages, user: " ann\n" }).withResponse(),
        client.chat.completions
          .create({ model: "m", messages, user: "cache-7", safety_identifier: "ann" })
          .withResponse(),
        client.completions.create({ model: "m", prompt: "x", user: "ann" }).withResponse(),
        client.embeddings.create({ model: "embedder", input: "x", user: "ann" }).withResponse()
      ])
    )
    for (const { response } of answers) assert.strictEqual(yield* endUserOf(response), "ann")
    for (const { raw } of backend.requests) assert.notInclude(raw, "ann")
    const metrics = yield* call("/metrics")
    assert.notInclude(metrics.text, "ann")
  })

  test("when the key names a header, then it says the user on every endpoint, a field wins, and other keys ignore it", function* () {
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
    assert.isTrue(backend.requests.every((request) => request.headers[header.toLowerCase()] === undefined))
  })
})
