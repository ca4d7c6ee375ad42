/** The OpenAI-compatible surface: what goes out is server-sent events in OpenAI's shapes. */
import type { Dialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { decodeChat } from "./chatRequest.ts"
import { completionEncoder } from "./completionAnswer.ts"
import { decodeCompletion } from "./completionRequest.ts"

const contentType = "text/event-stream"

export const openaiChat: Dialect = {
  contentType,
  decode: decodeChat,
  encoder: (request) => chatEncoder(request.model)
}

export const openaiCompletions: Dialect = {
  contentType,
  decode: decodeCompletion,
  encoder: (request) => completionEncoder(request.model, request.echo)
}
