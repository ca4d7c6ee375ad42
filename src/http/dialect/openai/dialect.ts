/** The OpenAI surface: server-sent events in OpenAI's shapes. */
import type { Embeddings } from "../../../domain/Frame.ts"
import type { Dialect, ObjectDialect } from "../Dialect.ts"
import { chatEncoder, completionEncoder } from "./answer.ts"
import { chatRequest } from "./chatRequest.ts"
import { completionRequest } from "./completionRequest.ts"
import { embeddingsRequest, encodeEmbeddings } from "./embeddings.ts"

const contentType = "text/event-stream"

export const openaiChat: Dialect = {
  contentType,
  ...chatRequest,
  encoder: ({ model, usageChunk }, { errorBody }) => chatEncoder(model, { usageChunk, errorBody })
}

export const openaiCompletions: Dialect = {
  contentType,
  ...completionRequest,
  encoder: ({ echo, model, usageChunk }, { errorBody }) =>
    completionEncoder(model, echo, { usageChunk, errorBody })
}

export const openaiEmbeddings: ObjectDialect<Embeddings> = { ...embeddingsRequest, encode: encodeEmbeddings }
