/** Many answers at once: none waits for another, and what the gateway itself asks waits for none of them. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Stream } from "effect"
import { Backend } from "../../../src/backend/Backend.ts"
import { layerCircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import { layerOllama } from "../../../src/backend/ollama/client.ts"
import { Drain } from "../../../src/infra/Drain.ts"
import { fake, makeFakeBackend } from "../../support/FakeBackend.ts"
import { forward, stream, test } from "./calls.ts"
import { testWith } from "../../support/testWith.ts"

const test = testWith(it.live)

test("when 400 streams are asked for at once, then all are under way at the same time", function* () {
  const backend = yield* makeFakeBackend
  backend.always(stream([fake.chat("x")], { ends: "hang" }))
  const layer = layerOllama({
    url: new URL(backend.url),
    connectTimeoutMs: 60_000,
    firstByteTimeoutMs: 60_000,
    idleTimeoutMs: 60_000
  }).pipe(Layer.provide([layerCircuitBreaker({ failures: 5, openMs: 1000 }), Drain.layer]))
  const first = Effect.flatMap(forward(), (frames) => Stream.runHead(frames))
  const begun = yield* Effect.forEach(Array.from({ length: 400 }), () => first, {
    concurrency: "unbounded"
  }).pipe(Effect.scoped, Effect.provide(layer))
  assert.strictEqual(begun.length, 400)
  assert.strictEqual(backend.requests.length, 400)
})

test(
  "when every connection for answers is taken, then a list and a ping are answered",
  function* (backend) {
    const { models, ping } = yield* Backend
    backend.script({ does: "hang" })
    const streaming = yield* Effect.forkChild(forward(), { startImmediately: true })
    yield* backend.until(() => backend.requests.length === 1)
    yield* Effect.timeout(ping, "1 minute")
    assert.strictEqual((yield* Effect.timeout(models, "1 minute")).length, 1)
    assert.isUndefined(streaming.pollUnsafe())
    yield* Fiber.interrupt(streaming)
  },
  { connections: 1 }
)
