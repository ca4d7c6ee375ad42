/**
 * An answer whose end is not sent yet. Handlers make replies and do not send their ends: `endRequest.ts` charges and
 * audits the request first.
 */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Outcome } from "../domain/Outcome.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import type { ErrorResponse } from "./errors/errorResponses.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

export interface Reply {
  readonly outcome: Outcome
  /** whether the concurrency slot is kept until `send` is over, because the client may read slowly */
  readonly keepSlot: boolean
  /** whether the request shares an audit row with others */
  readonly tallied: boolean
  /** Sends the rest of the answer. */
  send(): Effect.Effect<Response>
  /** Sends an error instead, because the request could not be audited. */
  fail(error: ErrorResponse): Effect.Effect<Response>
}

/** The value for a response that is already written: the server ignores it (`writableEnded`). */
export const written = HttpServerResponse.empty({ status: 200 })

/** The reply to a refused or failed request. */
export const refusal = (context: RequestContext, error: ErrorResponse, tallied = false): Reply => ({
  outcome: { status: error.status, type: error.type },
  keepSlot: false,
  tallied,
  send: () => Effect.succeed(respondError(context, error)),
  fail: (other) => Effect.succeed(respondError(context, other))
})
