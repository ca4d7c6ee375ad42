/** The native surface: what goes out is NDJSON in the backend's own shapes. */
import type { Dialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { decodeChat } from "./chatRequest.ts"
import { generateEncoder } from "./generateAnswer.ts"
import { decodeGenerate } from "./generateRequest.ts"

const contentType = "application/x-ndjson"

export const nativeChat: Dialect = {
  contentType,
  decode: decodeChat,
  encoder: (request) => chatEncoder(request.model)
}

export const nativeGenerate: Dialect = {
  contentType,
  decode: decodeGenerate,
  encoder: (request) => generateEncoder(request.model)
}
