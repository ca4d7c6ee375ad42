/** The OpenAI surface: server-sent events in OpenAI's shapes. */
import type { Embeddings } from "../../../domain/Frame.ts"
import type { AnswerFacts, Dialect, Encoder, ObjectDialect } from "../Dialect.ts"
import { chatEncoder, event } from "./chatAnswer.ts"
import { chatRequest } from "./chatRequest.ts"
import { completionEncoder } from "./completionAnswer.ts"
import { completionRequest } from "./completionRequest.ts"
import { encodeEmbeddings } from "./embeddingsAnswer.ts"
import { embeddingsRequest } from "./embeddingsRequest.ts"

const contentType = "text/event-stream"

/** The encoder with the errors of its surface. */
const onSurface = ({ errorBody }: AnswerFacts, encoder: Encoder): Encoder =>
  errorBody === undefined
    ? encoder
    : { ...encoder, failure: (error, requestId) => event(errorBody(error, requestId)) }

export const openaiChat: Dialect = {
  contentType,
  ...chatRequest,
  encoder: (request, facts) => onSurface(facts, chatEncoder(request.model, request.usageChunk))
}

export const openaiCompletions: Dialect = {
  contentType,
  ...completionRequest,
  encoder: (request, facts) =>
    onSurface(facts, completionEncoder(request.model, request.echo, request.usageChunk))
}

export const openaiEmbeddings: ObjectDialect<Embeddings> = {
  ...embeddingsRequest,
  encode: encodeEmbeddings
}
