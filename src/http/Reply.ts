/**
 * An answer that is ready but for its end. Handlers make replies and do not send their ends: `endRequest.ts` charges and
 * audits the request first.
 */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Outcome } from "../domain/Outcome.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import type { ErrorResponse } from "./errorResponses.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

export interface Reply {
  readonly outcome: Outcome
  /** whether the concurrency slot stays taken until `send` is over: the client may take long to read it */
  readonly keepSlot: boolean
  /** whether the request has no audit row of its own: it is counted in one row with others */
  readonly tallied: boolean
  /** Sends what is left of the answer. */
  send(): Effect.Effect<Response>
  /** Says instead that the request has failed after all, because it could not be audited. */
  fail(error: ErrorResponse): Effect.Effect<Response>
}

/** What is returned of a response that has been written: the server leaves it alone (`writableEnded`). */
export const written = HttpServerResponse.empty({ status: 200 })

/** The answer to a request that does not get what it asked for. */
export const refusal = (context: RequestContext, error: ErrorResponse, tallied = false): Reply => ({
  outcome: { status: error.status, type: error.type },
  keepSlot: false,
  tallied,
  send: () => Effect.succeed(respondError(context, error)),
  fail: (other) => Effect.succeed(respondError(context, other))
})
