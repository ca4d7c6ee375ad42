/** What a handler answers. `endRequest.ts` charges and audits the request before the client sees the end of it. */
import type { ServerResponse } from "node:http"
import type { Effect } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { Parts } from "../domain/Frame.ts"
import type { Answer } from "../request/meterStream.ts"
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
  /** where the text goes */
  readonly response: ServerResponse
  readonly answer: Answer<GatewayError>
  /** ends when the model server has sent its first frame or has failed; absent: it has sent the first frame */
  readonly begins?: Effect.Effect<unknown>
  readonly encoder: Encoder
  /** the memory of what the client has not read yet */
  readonly share: AnswerShare
}

export type Reply = ObjectReply | StreamReply
