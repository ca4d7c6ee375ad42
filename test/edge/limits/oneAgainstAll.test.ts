/** One person whose requests make the backend fail does not close it to the others. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey as freshKey } from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"

const broken: Behaviour = { does: "answer", status: 500, body: `{"error":"CUDA error"}` }
/** A key of its own, once the gateway knows what is installed. */
const newKey = Effect.tap(freshKey(), ({ secret }) =>
  eventually(call("/api/tags", { secret }), ({ text }) => text.includes("m:latest"))
)
const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

/** A gauge of `/metrics`. */
const shows = (gauge: string) => eventually(call("/metrics"), ({ text }) => text.includes(`\n${gauge}\n`))

inWorld(layerGateway({ BREAKER_OPEN_MS: "60000" }))("a key that makes the backend fail", (test) => {
  test("when it fails five times beside a busy key, then its sixth request is not sent, and the busy key goes on", function* () {
    const backend = yield* Fake
    const [busy, bad] = [yield* newKey, yield* newKey]
    for (let n = 0; n < 5; n += 1) {
      backend.script(broken)
      assert.strictEqual((yield* chat(bad.secret)).status, 502)
      assert.strictEqual((yield* chat(busy.secret)).status, 200)
    }
    const sent = backend.requests.length
    const refused = yield* chat(bad.secret)
    assert.strictEqual(refused.status, 502)
    assert.match(refused.headers.get("retry-after") ?? "", /^(?:5\d|60)$/)
    assert.strictEqual(backend.requests.length, sent)
    assert.strictEqual((yield* chat(busy.secret)).status, 200)
    yield* shows("tollgate_breaker_open_keys 1")
    yield* shows("tollgate_breaker_state 0")
  })
})

/** Asks as `secret`: so many requests that make the backend fail, at once. */
const breaking = (secret: string, times: number) =>
  Effect.all(
    Array.from({ length: times }, () =>
      call("/api/chat", {
        secret,
        body: hello({ stream: false, messages: [{ role: "user", content: "break" }] })
      })
    ),
    { concurrency: times }
  )

inWorld(layerGateway({ BREAKER_OPEN_MS: "60000" }))("people who make the backend fail", (test) => {
  test("when two keys of one tenant send three failing requests at once and then a good one, again and again, then others are served", function* () {
    const [backend, registry] = [yield* Fake, yield* Registry]
    const [honest, first] = [yield* newKey, yield* newKey]
    const { secret: second } = yield* registry.createKey({ tenant: first.tenant, name: "second" })
    // A colleague of the hostile person.
    const { secret: colleague } = yield* registry.createKey({ tenant: first.tenant, name: "colleague" })
    backend.always(({ raw }) => (raw.includes("break") ? broken : fake.atOnce()))
    const others = Effect.forEach([honest.secret, colleague], chat, { concurrency: 2 })
    const statuses = (yield* others).map(({ status }) => status)
    for (let round = 0; round < 8; round += 1) {
      const hostile = Effect.forEach(
        [first.secret, second],
        (secret) => Effect.andThen(breaking(secret, 3), chat(secret)),
        { concurrency: 2 }
      )
      const [, during] = yield* Effect.all([hostile, others], { concurrency: 2 })
      const after = yield* others
      statuses.push(...[...during, ...after].map(({ status }) => status))
    }
    assert.deepStrictEqual(
      statuses,
      Array.from({ length: 34 }, () => 200)
    )
    backend.always(undefined)
  })

  test("when two tenants send nothing but failing requests, then a third one that is served goes on", function* () {
    const backend = yield* Fake
    const [honest, ...hostile] = [yield* newKey, yield* newKey, yield* newKey]
    backend.always(({ raw }) => (raw.includes("break") ? broken : fake.atOnce()))
    for (let round = 0; round < 4; round += 1) {
      yield* Effect.forEach(hostile, ({ secret }) => breaking(secret, 4), { concurrency: 2 })
      assert.strictEqual((yield* chat(honest.secret)).status, 200)
    }
    yield* shows("tollgate_breaker_open_keys 2")
    yield* shows("tollgate_breaker_state 0")
    backend.always(undefined)
  })
})

/** What Ollama says when it is the request that cannot be done. */
const clientCaused: ReadonlyArray<Behaviour> = [
  { does: "answer", status: 500, body: `{"error":"invalid JSON schema in format"}` },
  { does: "answer", status: 500, body: `{"error":"Failed to create new sequence: no input provided"}` },
  {
    does: "answer",
    status: 500,
    body: `{"error":"model requires more system memory (63.6 GiB) than is available (18.9 GiB)"}`
  }
]

inWorld(layerGateway({ BREAKER_OPEN_MS: "60000" }))("the circuit", (test) => {
  test("when a key's requests are at fault, then it is told so and the circuit stays closed", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey
    for (const behaviour of [...clientCaused, ...clientCaused]) {
      backend.script(behaviour)
      assert.strictEqual((yield* chat(secret)).status, 400)
    }
    assert.strictEqual((yield* chat(secret)).status, 200)
  })
})
