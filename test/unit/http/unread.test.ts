import { assert, it } from "@effect/vitest"
import { Effect, Pull, Stream } from "effect"
import type { AnswerShare } from "../../../src/memory/MemoryLedger.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import type { Encoder } from "../../../src/http/dialect/Dialect.ts"
import { pieceBytes, readAhead } from "../../../src/http/unread.ts"

const frame = (text: string, done: boolean): Frame => ({ createdAt: "2026-11-21T10:00:00Z", text, done })
const encoder: Encoder = {
  frames: (chunk) => chunk.map(({ text }) => text).join(""),
  failure: () => "",
  object: () => ""
}

it.effect(
  "when the text of the final frame is long, then it goes out in pieces, and each counts until it is taken",
  () =>
    Effect.gen(function* () {
      const held: Array<number> = []
      const share: AnswerShare = {
        collect: () => Effect.void,
        hold: (bytes) => Effect.sync(() => void held.push(bytes))
      }
      const last = "x".repeat(2 * pieceBytes + 1)
      const { hasRest, pull } = yield* readAhead(
        {
          _tag: "Stream",
          contentType: "text/event-stream",
          answer: Stream.make(frame("begin", false), frame("", true)),
          encoder,
          share
        },
        () => Effect.succeed(last)
      )
      const pulled: Array<number> = []
      do {
        const { length } = yield* Effect.orDie(Pull.catchDone(pull, () => Effect.die("no end")))
        pulled.push(length)
      } while (pulled.length < 2 || hasRest())
      assert.deepStrictEqual(pulled, ["begin".length, pieceBytes, pieceBytes, 1])
      // The first piece of the end counts beside the others, and the last one until its writer asks again.
      assert.deepStrictEqual(held.slice(-4), [last.length + "begin".length, last.length, pieceBytes + 1, 1])
    })
)
