/** What of an answer waits for the books to be closed, and what does not. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import type { Frame } from "../../../src/domain/Frame.ts"
import { makeCalling } from "../../../src/pipeline/calling.ts"
import { Exchange } from "../../../src/pipeline/Exchange.ts"
import { makeForward } from "../../../src/pipeline/forward.ts"
import { ports } from "../../../src/pipeline/Ports.ts"
import { callOf, permitFor } from "../../support/permits.ts"
import { layerPorts } from "../../support/ports.ts"
import { noon } from "../../support/records.ts"

const createdAt = "2026-01-01T00:00:00Z"
const word = (text: string): Frame => ({ createdAt, text, done: false })
const final: Frame = { createdAt, text: "", done: true, doneReason: "stop", promptEvalCount: 1, evalCount: 2 }

/** Reads an answer that comes whole in one read while its books cannot be closed: what it says before and after. */
const reading = Effect.fnUntraced(function* (streamed: boolean) {
  const all = yield* ports
  const [closed, read] = [yield* Deferred.make<void>(), Array<string>()]
  const exchange = new Exchange({
    requestId: "01a1fe92-0000-7000-8000-00000000000a",
    arrivedAt: noon,
    method: "POST",
    endpoint: "/api/chat",
    clientIp: "127.0.0.1"
  })
  exchange.streamed = streamed
  const backend = { ...all.backend, forward: () => Effect.succeed(Stream.make(word("a"), word("b"), final)) }
  const forward = makeForward({ ...all, backend }, makeCalling(all), () =>
    Effect.map(Deferred.await(closed), () => void (exchange.concluded = true))
  )
  const answer = yield* forward(exchange, permitFor("m:latest"), callOf().request, 100)
  const reader = yield* Effect.forkChild(
    Stream.runForEach(answer, ({ done, text }) => Effect.sync(() => void read.push(done ? "end" : text))),
    { startImmediately: true }
  )
  const before = [...read]
  yield* Deferred.succeed(closed, undefined)
  yield* Fiber.join(reader)
  return { before, whole: read }
}, Effect.scoped)

it.effect("only the end of a stream waits for the books, though it came with all the rest", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* reading(true), { before: ["a", "b"], whole: ["a", "b", "end"] })
  }).pipe(Effect.provide(layerPorts))
)

it.effect("an answer in one object waits as a whole", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* reading(false), { before: [], whole: ["a", "b", "end"] })
  }).pipe(Effect.provide(layerPorts))
)
