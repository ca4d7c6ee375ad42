/** The native surface: what goes out is NDJSON in the backend's own shapes. */
import type { Embeddings } from "../../domain/Embeddings.ts"
import type { JsonObject } from "../../domain/Inference.ts"
import type { Dialect, ObjectDialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { decodeChat } from "./chatRequest.ts"
import { encodeEmbed, encodeEmbeddings } from "./embedAnswer.ts"
import { decodeEmbed, decodeEmbeddings } from "./embedRequest.ts"
import { generateEncoder } from "./generateAnswer.ts"
import { decodeGenerate } from "./generateRequest.ts"
import { decodeShow } from "./showRequest.ts"

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

export const nativeEmbed: ObjectDialect<Embeddings> = {
  decode: decodeEmbed,
  ask: ({ embed }) => embed,
  encode: encodeEmbed
}

export const nativeEmbeddings: ObjectDialect<Embeddings> = {
  decode: decodeEmbeddings,
  ask: ({ embed }) => embed,
  encode: encodeEmbeddings
}

export const nativeShow: ObjectDialect<JsonObject> = {
  decode: decodeShow,
  ask: ({ show }) => show,
  encode: (_request, shown) => JSON.stringify(shown)
}
