/** The surfaces whose errors have the common shape. A dialect with another one has its surface in its own folder. */
import type { ErrorBody, Surface } from "../domain/Surface.ts"
import { errorBody } from "./errors/errorResponses.ts"

/** Clients of Ollama show `error` as it is, and some fail on an object. */
const withText: ErrorBody = (error, requestId) => ({ ...errorBody(error, requestId), error: error.message })

/** OpenAI's own `code` is a text, and typed clients fail on a number. */
const withTextCode: ErrorBody = (error, requestId) => {
  const body = errorBody(error, requestId)
  return { ...body, error: { ...body.error, code: String(body.error.code) } }
}

export const native: Surface = { name: "native", errorBody, clientErrorBody: withText }
export const openai: Surface = { name: "openai", errorBody, clientErrorBody: withTextCode }
export const operations: Surface = { name: "operations", errorBody }
