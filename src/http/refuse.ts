/**
 * The refusal of a failed request, and its delay. Refusals cost a client little, so a flood of them is slowed down and
 * shares audit rows.
 */
import { Effect, Result } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { GatewayError } from "../domain/Errors.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import type { Ending } from "../request/finish.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errors/errorResponses.ts"
import { FreeWork } from "./FreeWork.ts"
import { Tarpit } from "./server/Tarpit.ts"

/** The refusal of a request, and what is kept of it. */
export interface Refusal extends Omit<Ending, "outcome"> {
  readonly response: ErrorResponse
}

/** Whether the client caused the failure. Only such refusals are delayed. */
const isClientError = (error: GatewayError): boolean => toErrorResponse(error).status < 500
const isCrowded = (error: GatewayError): boolean => error._tag === "Unavailable" && error.crowded === true

export const makeRefuse = Effect.gen(function* () {
  const { log } = yield* FailureLog
  const freeWork = yield* FreeWork
  const limiter = yield* Limiter
  const tarpit = yield* Tarpit

  /**
   * Reads what is left for a caller, for the headers. When the store does not answer, the refusal goes out without
   * it.
   */
  const showHeadroom = (
    context: RequestContext,
    caller: Caller,
    error: GatewayError | undefined
  ): Effect.Effect<void> => {
    if (error?._tag === "RateLimited" || error?._tag === "BudgetExhausted") {
      if (error.headroom !== undefined) context.headroom = error.headroom
    }
    if (context.headroom !== undefined) return Effect.void
    const { keyId } = caller
    // A caller without free work gets the figures of the last second.
    const recent = error?._tag === "FreeWorkExhausted" ? freeWork.headroom(keyId) : undefined
    if (recent !== undefined) {
      context.headroom = recent
      return Effect.void
    }
    return limiter.headroom(caller).pipe(
      Effect.map((headroom) => {
        context.headroom = headroom
        freeWork.noteHeadroom(keyId, headroom)
      }),
      Effect.ignore
    )
  }

  /** Work that no limit has counted is charged as free work, on every route and for every ending. */
  const spendFreeWork = ({ caller, cost, said }: RequestContext): void => {
    if (caller !== undefined && cost.permit === undefined) freeWork.spend(caller, said.bodyBytes)
  }

  /**
   * Slows down refusals of unknown callers, and decides which of them have their own audit row. A refusal for lack of
   * room is not slowed down: its caller may be the owner of a key at which others guess.
   */
  const rowOf = (context: RequestContext, error: GatewayError): Effect.Effect<Ending["row"]> => {
    if (context.caller !== undefined)
      return Effect.succeed(error._tag === "FreeWorkExhausted" ? "shared" : "own")
    const { clientIp } = context.arrival
    const waits = isClientError(error) && !isCrowded(error)
    return Effect.map(waits ? tarpit.turn(clientIp) : tarpit.turnNow(clientIp), (hasRow) =>
      hasRow ? "own" : "shared"
    )
  }

  /** The refusal itself. For a flooding key it comes late, or closes the connection. */
  const responseOf = (context: RequestContext, error: GatewayError): Effect.Effect<ErrorResponse> => {
    const response = toErrorResponse(error)
    if (context.caller === undefined || error._tag !== "FreeWorkExhausted") return Effect.succeed(response)
    return Effect.map(freeWork.delay(context.caller.keyId), (inTime) =>
      inTime ? response : { ...response, headers: { ...response.headers, connection: "close" } }
    )
  }

  /** The refusal of a request that failed. */
  const refuse = Effect.fnUntraced(function* (
    context: RequestContext,
    error: GatewayError
  ): Effect.fn.Return<Refusal> {
    // Otherwise a key that keeps sending would never have free work again.
    if (error._tag !== "FreeWorkExhausted") spendFreeWork(context)
    yield* log(context, error)
    const row = yield* rowOf(context, error)
    const response = yield* responseOf(context, error)
    if (context.caller !== undefined) yield* showHeadroom(context, context.caller, error)
    const hint = error._tag === "Forbidden" ? error.told : undefined
    return { response, row, detail: error.refusal, hint }
  })

  /** The refusal of a request with a defect. */
  const refuseDefect = Effect.fnUntraced(function* (
    context: RequestContext,
    defect: unknown
  ): Effect.fn.Return<Refusal> {
    yield* withRequestId(context, Effect.logError("defect", defect))
    if (context.caller !== undefined) yield* showHeadroom(context, context.caller, undefined)
    return { response: internalError, row: "own" }
  })

  /** Whether a request whose client left has its own audit row. That of an unknown caller has none. */
  const rowWhenLeft = ({ caller }: RequestContext): Ending["row"] =>
    caller === undefined || Result.isFailure(freeWork.check(caller)) ? "shared" : "own"

  return { refuse, refuseDefect, rowWhenLeft, spendFreeWork }
})
