/**
 * Around every audited request: its context, its finaliser, and the only catch there is. Handlers fail with a
 * `GatewayError`; here it gets its face, its audit row, and its answer, in that order.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import { HttpServerError, type HttpServerResponse } from "effect/http"
import type { Caller } from "../domain/Caller.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { withRequestId } from "../observability/failureLog.ts"
import type { Desk } from "./Desk.ts"
import { type ErrorResponse, toErrorResponse, internalError } from "./errorResponses.ts"
import { withRequestSpan } from "../observability/requestSpan.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

/** Whether a failure is of the client's making: a store that is down says so at once, a flood waits its turn. */
const isTheirs = (error: GatewayError): boolean => toErrorResponse(error).status < 500
const isCrowded = (error: GatewayError): boolean => error._tag === "Unavailable" && error.crowded === true

export const makeEndpoint = ({
  complain,
  freeWork,
  pipeline,
  tarpit,
  traced
}: Pick<Desk, "complain" | "freeWork" | "pipeline" | "tarpit" | "traced">) => {
  /** What is left for a caller. Headers are a courtesy here: a store that cannot tell does not change the refusal. */
  const noteHeadroom = (context: RequestContext, caller: Caller, exhausted: boolean): Effect.Effect<void> => {
    if (context.headroom !== undefined) return Effect.void
    // Whoever has no free work left gets what was read within the last second.
    if (exhausted) context.headroom = freeWork.headroom(caller.keyId)
    if (context.headroom !== undefined) return Effect.void
    return pipeline.headroom(caller).pipe(
      Effect.map((headroom) => {
        context.headroom = headroom
        freeWork.noteHeadroom(caller.keyId, headroom)
      }),
      Effect.ignore
    )
  }

  /** Charges, audits and answers a request that will not get what it asked for. */
  const refuse = Effect.fnUntraced(function* (context: RequestContext, face: ErrorResponse, tallied = false) {
    if (context.caller !== undefined) yield* noteHeadroom(context, context.caller, tallied)
    const ending = { status: face.status, errorType: face.type, tallied }
    return yield* pipeline.finish(context, ending).pipe(
      Effect.as(face),
      Effect.catch((error) => Effect.as(complain(context, error), toErrorResponse(error))),
      Effect.map((shown) => respondError(context, shown))
    )
  })

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
  const faceOf = (context: RequestContext, error: GatewayError): Effect.Effect<ErrorResponse> => {
    const face = toErrorResponse(error)
    if (context.caller === undefined || error._tag !== "FreeWorkExhausted") return Effect.succeed(face)
    return Effect.map(freeWork.delay(context.caller.keyId, error), (inTime) =>
      inTime ? face : { ...face, headers: { ...face.headers, connection: "close" } }
    )
  }

  /** Whether a request that its client did not wait for has no row of its own: of a stranger it never has. */
  const isTalliedWhenLeft = ({ caller }: RequestContext): Effect.Effect<boolean> =>
    caller === undefined
      ? Effect.succeed(true)
      : Effect.match(freeWork.check(caller), { onFailure: () => true, onSuccess: () => false })

  /** For an request that never reached its own end: the client left, or something broke. */
  const abandon = Effect.fnUntraced(function* (context: RequestContext, exit: Exit.Exit<unknown, unknown>) {
    if (context.finished) return
    const ending = unfinished(exit)
    const tallied = ending.status === 499 && (yield* isTalliedWhenLeft(context))
    spendFreeWork(context)
    yield* Effect.catch(pipeline.finish(context, { ...ending, tallied }), (error) =>
      withRequestId(context, Effect.logWarning("audit row late", error.cause))
    )
  })

  return <R>(
    context: RequestContext,
    handler: Effect.Effect<Response, GatewayError, R>
  ): Effect.Effect<Response, never, R | Scope.Scope> => {
    const finalised = Effect.flatMap(Effect.scope, (scope) =>
      Scope.addFinalizerExit(scope, (exit) => abandon(context, exit))
    )
    const handled = finalised.pipe(
      // The server runs its app uninterruptibly: unless a handler opens up, a client that leaves is never noticed.
      Effect.andThen(Effect.interruptible(handler)),
      Effect.tap(() => Effect.sync(() => spendFreeWork(context))),
      Effect.catch((error) => {
        // Else a key that goes on asking would never have anything again.
        if (error._tag !== "FreeWorkExhausted") spendFreeWork(context)
        return complain(context, error).pipe(
          Effect.andThen(isTallied(context, error)),
          Effect.flatMap((tallied) =>
            Effect.flatMap(faceOf(context, error), (face) => refuse(context, face, tallied))
          )
        )
      }),
      Effect.catchDefect((defect) =>
        Effect.andThen(
          withRequestId(context, Effect.logError("defect", defect)),
          refuse(context, internalError)
        )
      )
    )
    return traced ? withRequestSpan(context, handled) : handled
  }
}

export type Endpoint = ReturnType<typeof makeEndpoint>

/** 499 when the client left; when it was us who stopped, the client was not served (503). */
const unfinished = (exit: Exit.Exit<unknown, unknown>) => {
  if (Exit.isSuccess(exit)) return { status: internalError.status, errorType: internalError.type }
  const interrupts = exit.cause.reasons.filter((reason) => reason._tag === "Interrupt")
  if (interrupts.length === 0) return { status: internalError.status, errorType: internalError.type }
  return interrupts.some((reason) => reason.annotations.has(HttpServerError.ClientAbort.key))
    ? { status: 499, errorType: "client_closed_request" }
    : { status: 503, errorType: "service_unavailable" }
}

/** Whether a cause speaks of an interruption, which no catch may swallow. */
export const interrupted = (cause: Cause.Cause<unknown>): boolean => Cause.hasInterrupts(cause)
