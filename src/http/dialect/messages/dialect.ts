/** The Messages surface of Anthropic. It speaks to the model server's chat, never to its own `/v1/messages`. */
import type { Dialect, ObjectDialect } from "../Dialect.ts"
import { encodeCount, messagesEncoder } from "./answer.ts"
import { countRequest, messagesRequest } from "./request.ts"

export const messages: Dialect = {
  contentType: "text/event-stream",
  ...messagesRequest,
  encoder: messagesEncoder
}

export const messagesCount: ObjectDialect<void> = { ...countRequest, encode: encodeCount }
