/** What a metered answer says at its end. Who waits for the books to be closed is `http/inference.ts`. */
import { assert, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { Frame } from "../../../src/domain/Frame.ts"
import { makeCalling } from "../../../src/request/calling.ts"
import { RequestContext } from "../../../src/request/RequestContext.ts"
import { makeForward } from "../../../src/request/forward.ts"
import { ports } from "../../../src/request/Ports.ts"
import { callOf, permitFor } from "../../support/permits.ts"
import { layerPorts } from "../../support/ports.ts"
import { noon } from "../../support/records.ts"

const createdAt = "2026-01-01T00:00:00Z"
const word = (text: string): Frame => ({ createdAt, text, done: false })
const final: Frame = { createdAt, text: "", done: true, doneReason: "stop", promptEvalCount: 1, evalCount: 2 }

/** The chunks of an answer whose backend says `chunks`. */
const passed = Effect.fnUntraced(function* (chunks: ReadonlyArray<readonly [Frame, ...Array<Frame>]>) {
  const all = yield* ports
  const context = new RequestContext(
    {
      requestId: "01a1fe92-0000-7000-8000-00000000000a",
      arrivedAt: noon,
      method: "POST",
      endpoint: "/api/chat",
      clientIp: "127.0.0.1"
    },
    0
  )
  const said = Stream.flattenArray(Stream.fromIterable(chunks))
  const backend = { ...all.backend, forward: () => Effect.succeed(said) }
  const forward = makeForward({ ...all, backend }, makeCalling(all))
  const permit = permitFor("m:latest")
  context.reservation = { ...permit.reservation, held: 101 }
  const answer = yield* forward(context, permit, callOf().request, 100)
  const frames = yield* Stream.runCollect(answer)
  return { context, frames }
}, Effect.scoped)

it.effect(
  "when the backend says its last frame, then the answer ends with it and nobody has finished it",
  () =>
    Effect.gen(function* () {
      const { context, frames } = yield* passed([[word("a")], [word("b"), final], [word("more")]])
      assert.deepStrictEqual(
        frames.map(({ done, text }) => (done ? "end" : text)),
        ["a", "b", "end"]
      )
      assert.isFalse(context.finished)
    }).pipe(Effect.provide(layerPorts))
)

it.effect("when the backend's counts cannot be believed, then the last frame says what is charged", () =>
  Effect.gen(function* () {
    const { context, frames } = yield* passed([[word("a"), word("b"), { ...final, evalCount: 1_000_000 }]])
    const last = frames.at(-1)
    assert.deepStrictEqual(
      [last?.promptEvalCount, last?.evalCount],
      [context.usage.tokensIn, context.usage.tokensOut]
    )
    assert.isBelow(last?.evalCount ?? Infinity, 1000)
  }).pipe(Effect.provide(layerPorts))
)
