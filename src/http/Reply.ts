/** What a handler answers. `endRequest.ts` charges and audits the request before the client sees the end of it. */
import type { AnswerShare } from "../backend/AnswerMemory.ts"
import type { Answer } from "../request/meterStream.ts"
import type { Encoder } from "./dialect/Dialect.ts"

/** One JSON object. */
export interface ObjectReply {
  readonly _tag: "Object"
  /** the JSON text */
  readonly body: string
  /** the memory of the answer, until the client has it */
  readonly share: AnswerShare
}

/** Text that is sent while it is generated. */
export interface StreamReply {
  readonly _tag: "Stream"
  readonly contentType: string
  readonly answer: Answer
  readonly encoder: Encoder
  /** the memory of what the client has not read yet */
  readonly share: AnswerShare
}

export type Reply = ObjectReply | StreamReply
