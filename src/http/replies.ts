/** Answers in one object. */
import { Effect, type Scope } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { BackendFailed } from "../domain/Errors.ts"
import type { Answer, Parts } from "../domain/Frame.ts"
import { readAnswer } from "../request/meterStream.ts"
import type { Encoder } from "./dialect/Dialect.ts"
import { Fold } from "./dialect/fold.ts"
import type { ObjectReply } from "./Reply.ts"

export const objectReply = (body: Parts, share: AnswerShare): ObjectReply => ({
  _tag: "Object",
  body,
  share
})

/** Joins the frames of an answer to one object. */
export const foldedReply = (
  answer: Answer,
  encoder: Encoder,
  { scope, share }: { readonly scope: Scope.Scope; readonly share: AnswerShare }
) => {
  const fold = new Fold()
  return readAnswer(
    answer,
    scope,
    (frames) => {
      for (const frame of frames) fold.add(frame)
    },
    () =>
      fold.frame === undefined
        ? Effect.fail(new BackendFailed({ fault: "cut" }))
        : Effect.succeed(objectReply([encoder.object(fold.frame)], share))
  )
}
