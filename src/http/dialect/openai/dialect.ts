/** The OpenAI surface: server-sent events in OpenAI's shapes. */
import type { Embeddings } from "../../../domain/Embeddings.ts"
import type { Dialect, ObjectDialect } from "../Dialect.ts"
import { chatEncoder } from "./chatAnswer.ts"
import { chatRequest } from "./chatRequest.ts"
import { completionEncoder } from "./completionAnswer.ts"
import { completionRequest } from "./completionRequest.ts"
import { encodeEmbeddings } from "./embeddingsAnswer.ts"
import { embeddingsRequest } from "./embeddingsRequest.ts"

const contentType = "text/event-stream"

export const openaiChat: Dialect = {
  contentType,
  ...chatRequest,
  encoder: (request) => chatEncoder(request.model, request.usageChunk)
}

export const openaiCompletions: Dialect = {
  contentType,
  ...completionRequest,
  encoder: (request) => completionEncoder(request.model, request.echo, request.usageChunk)
}

export const openaiEmbeddings: ObjectDialect<Embeddings> = {
  ...embeddingsRequest,
  encode: encodeEmbeddings
}
