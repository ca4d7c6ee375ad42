/** OpenAI's Responses, beside its chat completions. */
import type { Dialect } from "../Dialect.ts"
import { responsesEncoder } from "./answer.ts"
import { responsesRequest } from "./request.ts"

export const responses: Dialect = {
  contentType: "text/event-stream",
  ...responsesRequest,
  encoder: (request, { requestId }) => responsesEncoder(request, requestId)
}
