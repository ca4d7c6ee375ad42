/** What a handler answers. `endRequest.ts` charges and audits the request before the client sees the end of it. */
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { Answer, Parts } from "../domain/Frame.ts"
import type { Encoder } from "./dialect/Dialect.ts"

/** One JSON object. */
export interface ObjectReply {
  readonly _tag: "Object"
  /** the parts of the JSON text */
  readonly body: Parts
  /** the memory of the answer, until the client has it */
  readonly share: AnswerShare
}

/** Text that is sent while it is generated. */
export interface StreamReply {
  readonly _tag: "Stream"
  readonly contentType: string
  readonly answer: Answer<GatewayError>
  /** whether the model server has not sent its first frame in time, so that the client is told that it waits */
  readonly isLate?: boolean
  readonly encoder: Encoder
  /** the memory of what the client has not read yet */
  readonly share: AnswerShare
}

export type Reply = ObjectReply | StreamReply
