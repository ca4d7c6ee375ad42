/** One key whose requests make the backend fail does not close it to the others. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey as freshKey } from "../../support/Gateway.ts"

const live = { excludeTestServices: true } as const

const broken: Behaviour = { does: "answer", status: 500, body: `{"error":"CUDA error"}` }
/** A key of its own, once the gateway knows what is installed. */
const newKey = Effect.tap(freshKey(), ({ secret }) =>
  eventually(call("/api/tags", { secret }), ({ text }) => text.includes("m:latest"))
)
const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

/** A gauge of `/metrics`. */
const shows = (gauge: string) => eventually(call("/metrics"), ({ text }) => text.includes(`\n${gauge}\n`))

layer(layerGateway({ BREAKER_OPEN_MS: "60000" }), live)("a key that makes the backend fail", (it) => {
  it.effect(
    "when it fails five times beside a busy key, then its sixth request is not sent, and the busy key goes on",
    () =>
      Effect.gen(function* () {
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
  )
})

/** What Ollama says when it is the request that cannot be done. */
const clientCaused: ReadonlyArray<Behaviour> = [
  { does: "answer", status: 500, body: `{"error":"invalid JSON schema in format"}` },
  { does: "stream", lines: [fake.error("Failed to create new sequence: failed to process inputs: illegal")] },
  { does: "answer", status: 500, body: `{"error":"Failed to create new sequence: no input provided"}` }
]

layer(layerGateway({ BREAKER_OPEN_MS: "60000" }), live)("the circuit", (it) => {
  it.effect("when a key's requests are at fault, then it is told so and the circuit stays closed", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey
      for (const behaviour of [...clientCaused, ...clientCaused]) {
        backend.script(behaviour)
        assert.strictEqual((yield* chat(secret)).status, 400)
      }
      assert.strictEqual((yield* chat(secret)).status, 200)
    })
  )
})
