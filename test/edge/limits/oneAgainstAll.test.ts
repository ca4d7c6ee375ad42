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

layer(layerGateway(), live)("a key that makes the backend fail", (it) => {
  it.effect("when another key was served lately, then nobody else is refused", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const [good, bad] = [yield* newKey, yield* newKey]
      for (let round = 0; round < 10; round += 1) {
        assert.strictEqual((yield* chat(good.secret)).status, 200, `round ${round}`)
        backend.script(...Array.from({ length: 7 }, () => broken))
        const calls = backend.requests.length
        for (let i = 0; i < 7; i += 1) assert.strictEqual((yield* chat(bad.secret)).status, 502)
        assert.strictEqual(backend.requests.length, calls + 7)
      }
    })
  )
})

/** The circuit lets a probe through. */
const halfOpen = eventually(call("/metrics"), ({ text }) => text.includes("\ntollgate_breaker_state 1\n"))

layer(layerGateway({ BREAKER_OPEN_MS: "500" }), live)("a key that made the circuit open", (it) => {
  it.effect("when it was the last probe, then the next probe is another key's", () =>
    Effect.gen(function* () {
      const backend = yield* Fake
      const [good, bad] = [yield* newKey, yield* newKey]
      backend.script(...Array.from({ length: 6 }, () => broken))
      for (let i = 0; i < 5; i += 1) yield* chat(bad.secret)
      assert.strictEqual((yield* chat(good.secret)).status, 502)
      yield* halfOpen
      // The first probe fails.
      yield* chat(bad.secret)
      yield* halfOpen
      const calls = backend.requests.length
      const passedOver = yield* chat(bad.secret)
      assert.strictEqual(passedOver.status, 502)
      assert.strictEqual(passedOver.headers.get("retry-after"), "1")
      assert.strictEqual(backend.requests.length, calls)
      assert.strictEqual((yield* chat(good.secret)).status, 200)
      assert.strictEqual((yield* chat(bad.secret)).status, 200)
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

  it.effect(
    "when the requests of two keys fail five times in a row, then it is open, whoever was served",
    () =>
      Effect.gen(function* () {
        const backend = yield* Fake
        const { secret } = yield* newKey
        backend.script(...Array.from({ length: 5 }, () => broken))
        const other = yield* newKey
        for (let i = 0; i < 4; i += 1) yield* chat(secret)
        yield* chat(other.secret)
        const calls = backend.requests.length
        assert.strictEqual((yield* chat(secret)).status, 502)
        assert.strictEqual(backend.requests.length, calls)
      })
  )
})
