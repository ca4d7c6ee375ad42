/**
 * Around every audited request: its exchange, its finaliser, and the only catch there is. Handlers fail with a
 * `GatewayError`; here it gets its face, its audit row, and its answer, in that order.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import { HttpServerError, type HttpServerResponse } from "effect/http"
import type { Caller } from "../domain/Caller.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { Exchange } from "../request/RequestContext.ts"
import { named } from "../observability/failureLog.ts"
import type { Desk } from "./Desk.ts"
import { type Face, faceOf, internalError } from "./errorResponses.ts"
import { withRequestSpan } from "../observability/requestSpan.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

/** Whether a failure is of the client's making: a store that is down says so at once, a flood waits its turn. */
const isTheirs = (error: GatewayError): boolean => faceOf(error).status < 500
const isCrowded = (error: GatewayError): boolean => error._tag === "Unavailable" && error.crowded === true

export const makeEndpoint = ({
  complain,
  freeWork,
  pipeline,
  tarpit,
  traced
}: Pick<Desk, "complain" | "freeWork" | "pipeline" | "tarpit" | "traced">) => {
  /** What is left for a caller. Headers are a courtesy here: a store that cannot tell does not change the refusal. */
  const noteHeadroom = (exchange: Exchange, caller: Caller, exhausted: boolean): Effect.Effect<void> => {
    if (exchange.headroom !== undefined) return Effect.void
    // Whoever has no free work left gets what was read within the last second.
    if (exhausted) exchange.headroom = freeWork.headroom(caller.keyId)
    if (exchange.headroom !== undefined) return Effect.void
    return pipeline.headroom(caller).pipe(
      Effect.map((headroom) => {
        exchange.headroom = headroom
        freeWork.noteHeadroom(caller.keyId, headroom)
      }),
      Effect.ignore
    )
  }

  /** Charges, audits and answers a request that will not get what it asked for. */
  const refuse = Effect.fnUntraced(function* (exchange: Exchange, face: Face, tallied = false) {
    if (exchange.caller !== undefined) yield* noteHeadroom(exchange, exchange.caller, tallied)
    const ending = { status: face.status, errorType: face.type, tallied }
    return yield* pipeline.conclude(exchange, ending).pipe(
      Effect.as(face),
      Effect.catch((error) => Effect.as(complain(exchange, error), faceOf(error))),
      Effect.map((shown) => respondError(exchange, shown))
    )
  })

  /** What no limit of the key has counted counts as free work, whatever route it took and however it ended. */
  const spendFreeWork = ({ bodyBytes, caller, opened }: Exchange): void => {
    if (caller !== undefined && !opened) freeWork.spend(caller.keyId, bodyBytes)
  }

  /**
   * Slows refusals of unknown callers down, and answers which refusals have no audit row of their own. A caller who is
   * crowded out is not slowed down: he may be the owner of the key that somebody guesses at.
   */
  const isTallied = (exchange: Exchange, error: GatewayError): Effect.Effect<boolean> => {
    if (exchange.caller !== undefined) return Effect.succeed(error._tag === "FreeWorkExhausted")
    if (isCrowded(error)) return Effect.map(tarpit.turnNow, (turn) => !turn)
    if (isTheirs(error)) return Effect.map(tarpit.turn(exchange.arrival.clientIp), (turn) => !turn)
    return Effect.succeed(false)
  }

  /** Whether a request that its client did not wait for has no row of its own: of a stranger it never has. */
  const isTalliedWhenLeft = ({ caller }: Exchange): Effect.Effect<boolean> =>
    caller === undefined
      ? Effect.succeed(true)
      : Effect.match(freeWork.check(caller.keyId), { onFailure: () => true, onSuccess: () => false })

  /** For an exchange that never reached its own end: the client left, or something broke. */
  const abandon = Effect.fnUntraced(function* (exchange: Exchange, exit: Exit.Exit<unknown, unknown>) {
    if (exchange.concluded) return
    const ending = unfinished(exit)
    const tallied = ending.status === 499 && (yield* isTalliedWhenLeft(exchange))
    spendFreeWork(exchange)
    yield* Effect.catch(pipeline.conclude(exchange, { ...ending, tallied }), (error) =>
      named(exchange, Effect.logWarning("the audit row of an abandoned request is late", error.cause))
    )
  })

  return <R>(
    exchange: Exchange,
    handler: Effect.Effect<Response, GatewayError, R>
  ): Effect.Effect<Response, never, R | Scope.Scope> => {
    const finalised = Effect.flatMap(Effect.scope, (scope) =>
      Scope.addFinalizerExit(scope, (exit) => abandon(exchange, exit))
    )
    const handled = finalised.pipe(
      // The server runs its app uninterruptibly: unless a handler opens up, a client that leaves is never noticed.
      Effect.andThen(Effect.interruptible(handler)),
      Effect.tap(() => Effect.sync(() => spendFreeWork(exchange))),
      Effect.catch((error) => {
        // Else a key that goes on asking would never have anything again.
        if (error._tag !== "FreeWorkExhausted") spendFreeWork(exchange)
        return complain(exchange, error).pipe(
          Effect.andThen(isTallied(exchange, error)),
          Effect.flatMap((tallied) => refuse(exchange, faceOf(error), tallied))
        )
      }),
      Effect.catchDefect((defect) =>
        Effect.andThen(named(exchange, Effect.logError("defect", defect)), refuse(exchange, internalError))
      )
    )
    return traced ? withRequestSpan(exchange, handled) : handled
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
