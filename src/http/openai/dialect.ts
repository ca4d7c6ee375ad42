/** The OpenAI-compatible surface: what goes out is server-sent events in OpenAI's shapes. */
import type { Dialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { decodeChat } from "./chatRequest.ts"

export const openaiChat: Dialect = {
  contentType: "text/event-stream",
  decode: decodeChat,
  encoder: (request) => chatEncoder(request.model)
}
