/** Answers in one object. */
import { Effect, Stream } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { BackendFailed } from "../domain/Errors.ts"
import type { Parts } from "../domain/Frame.ts"
import type { Answer } from "../request/meterStream.ts"
import type { Encoder } from "./dialect/Dialect.ts"
import { Fold } from "./dialect/fold.ts"
import type { ObjectReply } from "./Reply.ts"

export const objectReply = (body: Parts, share: AnswerShare): ObjectReply => ({
  _tag: "Object",
  body,
  share
})

/** Joins the frames of an answer to one object. */
export const foldedReply = Effect.fnUntraced(function* (
  answer: Answer,
  encoder: Encoder,
  share: AnswerShare
) {
  const fold = new Fold()
  yield* Stream.runForEachArray(answer, (frames) =>
    Effect.sync(() => {
      for (const frame of frames) fold.add(frame)
    })
  )
  return fold.frame === undefined
    ? yield* new BackendFailed({ fault: "cut" })
    : objectReply([encoder.object(fold.frame)], share)
})
