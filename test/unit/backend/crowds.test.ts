/** Many answers at once: none waits for another, and what the gateway itself asks waits for none of them. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { Backend } from "../../../src/backend/Backend.ts"
import { fake, makeFakeBackend } from "../../support/FakeBackend.ts"
import { forward, layerPatient, stream, test } from "./calls.ts"
import { testWith } from "../../support/testWith.ts"

testWith(it.live)(
  "when 400 streams are asked for at once, then all are under way at the same time",
  function* () {
    const backend = yield* makeFakeBackend
    backend.always(stream([fake.chat("x")], { ends: "hang" }))
    const first = Effect.flatMap(forward(), (frames) => Stream.runHead(frames))
    const begun = yield* Effect.forEach(Array.from({ length: 400 }), () => first, {
      concurrency: "unbounded"
    }).pipe(Effect.scoped, Effect.provide(layerPatient(backend.url)))
    assert.strictEqual(begun.length, 400)
    assert.strictEqual(backend.requests.length, 400)
  }
)

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
