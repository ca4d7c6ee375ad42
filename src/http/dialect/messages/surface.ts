/** The Messages surface of Anthropic: its errors have the common shape, and beside it what Anthropic's clients read. */
import { outcomes } from "../../../domain/Outcome.ts"
import type { ShownError, Surface } from "../../../domain/Surface.ts"
import { errorBody } from "../../errors/errorResponses.ts"

/** The names of errors that Anthropic's clients know, by status. Every other status is `api_error`. */
const typesOf: { readonly [status: number]: string } = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error"
}

/** Claude Code shortens a conversation when an error has these words. */
const messageOf = ({ message, type }: ShownError): string =>
  type === outcomes.contextExceeded.type ? `prompt is too long: ${message}` : message

export const messagesError = (error: ShownError, requestId: string) => ({
  type: "error",
  ...errorBody(
    { status: error.status, type: typesOf[error.status] ?? "api_error", message: messageOf(error) },
    requestId
  )
})

export const messagesSurface: Surface = {
  name: "messages",
  errorBody: messagesError,
  idHeader: "request-id",
  takesApiKey: true
}
