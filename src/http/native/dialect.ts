/** The native surface: what goes out is NDJSON in the backend's own shapes. */
import type { Dialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { decodeChat } from "./chatRequest.ts"

export const nativeChat: Dialect = {
  contentType: "application/x-ndjson",
  decode: decodeChat,
  encoder: (request) => chatEncoder(request.model)
}
