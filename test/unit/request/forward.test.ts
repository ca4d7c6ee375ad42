/** What a metered answer says at its end. The request ends later, in `http/endRequest.ts`. */
import { assert, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { seal } from "../../../src/domain/Evidence.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import { uncounted } from "../../../src/memory/MemoryLedger.ts"
import { Backend } from "../../../src/backend/Backend.ts"
import { makeForward } from "../../../src/request/forward.ts"
import { RequestContext } from "../../../src/request/RequestContext.ts"
import { arrivalOf, permitFor, reservedFor } from "../../support/permits.ts"
import { layerPorts } from "../../support/ports.ts"
import { testWith } from "../../support/testWith.ts"

const createdAt = "2026-01-01T00:00:00Z"
const word = (text: string): Frame => ({ createdAt, text, done: false })
const final: Frame = { createdAt, text: "", done: true, doneReason: "stop", promptEvalCount: 1, evalCount: 2 }

/** The chunks of an answer whose backend says `chunks`. */
const forwardChunks = Effect.fnUntraced(function* (chunks: ReadonlyArray<readonly [Frame, ...Array<Frame>]>) {
  const backend = Backend.of({
    ...(yield* Backend),
    forward: () => Effect.succeed(Stream.flattenArray(Stream.fromIterable(chunks)))
  })
  const { forward } = yield* Effect.provideService(makeForward, Backend, backend)
  const context = new RequestContext(arrivalOf("01a1fe92-0000-7000-8000-00000000000a"), 0, undefined)
  context.cost.hold(reservedFor("m:latest", { reservation: { held: 101 } }), 0)
  const answer = yield* forward(context, permitFor("m:latest"), uncounted, yield* Effect.scope)
  const frames = yield* Stream.runCollect(answer)
  return { context, frames }
}, Effect.scoped)

const test = testWith(it.effect, layerPorts)

test("when the backend says its last frame, then the answer ends with it and nobody has finished it", function* () {
  const { context, frames } = yield* forwardChunks([[word("a")], [word("b"), final], [word("more")]])
  assert.deepStrictEqual(
    frames.map(({ done, text }) => (done ? "end" : text)),
    ["a", "b", "end"]
  )
  assert.isUndefined(context.cost.ended)
})

test("when the backend's counts cannot be believed, then the last frame says what is charged", function* () {
  const { context, frames } = yield* forwardChunks([
    [word("a"), word("b"), { ...final, evalCount: 1_000_000 }]
  ])
  const last = frames.at(-1)
  assert.deepStrictEqual(
    [last?.promptEvalCount, last?.evalCount],
    [context.cost.usage.tokensIn, context.cost.usage.tokensOut]
  )
  assert.isBelow(last?.evalCount ?? Infinity, 1000)
})

test("when the answer has ended, then the call and its place end too, before the request does", function* () {
  const ended: Array<string> = []
  const did = (what: string) => Effect.sync(() => void ended.push(what))
  const backend = Backend.of({
    ...(yield* Backend),
    forward: () =>
      Effect.as(
        Effect.addFinalizer(() => did("call")),
        Stream.make(word("a"), final)
      )
  })
  const { forward } = yield* Effect.provideService(makeForward, Backend, backend)
  const context = new RequestContext(arrivalOf("01a1fe92-0000-7000-8000-00000000000a"), 0, undefined)
  const reserved = reservedFor("m:latest", { reservation: { held: 101 } })
  context.cost.hold(reserved, 0)
  const place = { queuedMs: 0, loaded: true, giveBack: Effect.as(did("place"), 0) }
  const permit = seal.Audit(seal.Queue(reserved, { place }), {})
  const answer = yield* forward(context, permit, uncounted, yield* Effect.scope)
  assert.deepStrictEqual(ended, [])
  yield* Stream.runDrain(answer)
  assert.deepStrictEqual(ended, ["call", "place"])
})
