/**
 * What a request that fails is told, and how soon. Refusals are cheap to ask for, so a flood of them is slowed down, and gets
 * one audit row for many.
 */
import { Effect } from "effect"
import type { GatewayError } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errorResponses.ts"
import { FreeWork } from "./FreeWork.ts"
import { refusal, type Reply } from "./Reply.ts"
import { Tarpit } from "./server/Tarpit.ts"

/** Whether a failure is of the client's making: a store that is down says so at once, a flood waits its turn. */
const isTheirs = (error: GatewayError): boolean => toErrorResponse(error).status < 500
const isCrowded = (error: GatewayError): boolean => error._tag === "Unavailable" && error.crowded === true

export const makeRefuse = Effect.gen(function* () {
  const [{ log }, freeWork, limiter, tarpit] = [
    yield* FailureLog,
    yield* FreeWork,
    yield* Limiter,
    yield* Tarpit
  ]

  /** What is left for a caller. Headers are a courtesy here: a store that cannot tell does not change the refusal. */
  const showHeadroom = (
    context: RequestContext,
    key: Evidence<"KeyStore">,
    error: GatewayError | undefined
  ): Effect.Effect<void> => {
    if (error?._tag === "RateLimited" || error?._tag === "BudgetExhausted") {
      if (error.headroom !== undefined) context.show(error.headroom)
    }
    if (context.headroom !== undefined) return Effect.void
    const { keyId } = key.known.caller
    // A caller without free work left gets what was read within the last second.
    const known = error?._tag === "FreeWorkExhausted" ? freeWork.headroom(keyId) : undefined
    if (known !== undefined) {
      context.show(known)
      return Effect.void
    }
    return limiter.headroom(key).pipe(
      Effect.map((headroom) => {
        context.show(headroom)
        freeWork.noteHeadroom(keyId, headroom)
      }),
      Effect.ignore
    )
  }

  /** What no limit of the key has counted counts as free work, whatever route it took and however it ended. */
  const spendFreeWork = ({ bodyBytes, caller, opened }: RequestContext): void => {
    if (caller !== undefined && !opened) freeWork.spend(caller, bodyBytes)
  }

  /**
   * Slows refusals of unknown callers down, and answers which refusals have no audit row of their own. A caller who is
   * crowded out is not slowed down: he may be the owner of the key that somebody guesses at.
   */
  const isTallied = (context: RequestContext, error: GatewayError): Effect.Effect<boolean> => {
    if (context.caller !== undefined) return Effect.succeed(error._tag === "FreeWorkExhausted")
    const { clientIp } = context.arrival
    const waits = isTheirs(error) && !isCrowded(error)
    return Effect.map(waits ? tarpit.turn(clientIp) : tarpit.turnNow(clientIp), (hasRow) => !hasRow)
  }

  /** What a refusal looks like: that of a key which floods comes late, or closes its connection. */
  const responseOf = (context: RequestContext, error: GatewayError): Effect.Effect<ErrorResponse> => {
    const response = toErrorResponse(error)
    if (context.caller === undefined || error._tag !== "FreeWorkExhausted") return Effect.succeed(response)
    return Effect.map(freeWork.delay(context.caller.keyId, error), (inTime) =>
      inTime ? response : { ...response, headers: { ...response.headers, connection: "close" } }
    )
  }

  /** The reply to a request that failed. */
  const refuse = Effect.fnUntraced(function* (
    context: RequestContext,
    error: GatewayError
  ): Effect.fn.Return<Reply> {
    // Else a key that goes on asking would never have anything again.
    if (error._tag !== "FreeWorkExhausted") spendFreeWork(context)
    yield* log(context, error)
    const tallied = yield* isTallied(context, error)
    const response = yield* responseOf(context, error)
    if (context.key !== undefined) yield* showHeadroom(context, context.key, error)
    return refusal(context, response, tallied)
  })

  /** The reply to a request in which something of ours broke. */
  const refuseDefect = Effect.fnUntraced(function* (
    context: RequestContext,
    defect: unknown
  ): Effect.fn.Return<Reply> {
    yield* withRequestId(context, Effect.logError("defect", defect))
    if (context.key !== undefined) yield* showHeadroom(context, context.key, undefined)
    return refusal(context, internalError)
  })

  /** Whether a request that its client did not wait for has no row of its own: of a stranger it never has. */
  const isTalliedWhenLeft = ({ caller }: RequestContext): Effect.Effect<boolean> =>
    caller === undefined
      ? Effect.succeed(true)
      : Effect.match(freeWork.check(caller), { onFailure: () => true, onSuccess: () => false })

  return { refuse, refuseDefect, spendFreeWork, isTalliedWhenLeft }
})
