/**
 * An answer whose end is not sent yet. A handler returns it, and `endRequest.ts` charges and audits the request before it
 * sends the end.
 */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Ending } from "../request/finish.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import type { ErrorResponse } from "./errors/errorResponses.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

export interface Reply {
  /** its slot is kept until `send` is over, if the client may read slowly */
  readonly ending: Ending
  /** Sends the rest of the answer. */
  readonly send: Effect.Effect<Response>
  /** Sends an error instead, because the request could not be audited. */
  fail(error: ErrorResponse): Effect.Effect<Response>
}

/** The value for a response that is already written: the server ignores it (`writableEnded`). */
export const written = HttpServerResponse.empty({ status: 200 })

/** The reply to a refused or failed request. */
export const refusal = (
  context: RequestContext,
  error: ErrorResponse,
  row: Ending["row"] = "own"
): Reply => ({
  ending: { outcome: { status: error.status, type: error.type }, row, slot: "freed" },
  send: Effect.sync(() => respondError(context, error)),
  fail: (other) => Effect.succeed(respondError(context, other))
})
