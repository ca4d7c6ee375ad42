/** The native surface: NDJSON in the backend's shapes. */
import type { Embeddings } from "../../../domain/Frame.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { jsonText } from "../../../domain/json.ts"
import type { Dialect, ObjectDialect } from "../Dialect.ts"
import { chatEncoder, generateEncoder } from "./answer.ts"
import { chatRequest } from "./chatRequest.ts"
import { embeddingsRequest, embedRequest, encodeEmbed, encodeEmbeddings } from "./embed.ts"
import { generateRequest } from "./generateRequest.ts"
import { showRequest } from "./showRequest.ts"

const contentType = "application/x-ndjson"

export const nativeChat: Dialect = {
  contentType,
  ...chatRequest,
  encoder: (request) => chatEncoder(request.model)
}

export const nativeGenerate: Dialect = {
  contentType,
  ...generateRequest,
  encoder: (request, { seal }) => generateEncoder(request.model, seal)
}

export const nativeEmbed: ObjectDialect<Embeddings> = { ...embedRequest, encode: encodeEmbed }

export const nativeEmbeddings: ObjectDialect<Embeddings> = { ...embeddingsRequest, encode: encodeEmbeddings }

export const nativeShow: ObjectDialect<JsonObject> = {
  ...showRequest,
  encode: (_request, shown) => [jsonText(shown)]
}
