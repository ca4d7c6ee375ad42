/**
 * Around every audited request: its exchange, its finaliser, and the only catch there is. Handlers fail with a
 * `GatewayError`; here it gets its face, its audit row, and its answer, in that order.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import { HttpServerError, type HttpServerResponse } from "effect/http"
import type { GatewayError } from "../domain/Errors.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { named } from "./complaints.ts"
import type { Desk } from "./Desk.ts"
import { type Face, faceOf, internalError } from "./faces.ts"
import { withRequestSpan } from "./requestSpan.ts"
import { respondError } from "./respond.ts"

type Response = HttpServerResponse.HttpServerResponse

/** Whether a failure is of the client's making: a store that is down says so at once, a flood waits its turn. */
const isTheirs = (error: GatewayError): boolean =>
  error._tag === "Unavailable" ? error.crowded === true : faceOf(error).status < 500

export const makeEndpoint = ({
  complain,
  pipeline,
  tarpit,
  traced
}: Pick<Desk, "complain" | "pipeline" | "tarpit" | "traced">) => {
  /** Charges, audits and answers a request that will not get what it asked for. */
  const refuse = Effect.fnUntraced(function* (exchange: Exchange, face: Face) {
    if (exchange.caller !== undefined && exchange.headroom === undefined) {
      // Headers are a courtesy here: a store that cannot tell what is left does not change the refusal.
      yield* pipeline.headroom(exchange.caller).pipe(
        Effect.map((headroom) => void (exchange.headroom = headroom)),
        Effect.catch(() => Effect.void)
      )
    }
    return yield* pipeline.conclude(exchange, { status: face.status, errorType: face.type }).pipe(
      Effect.as(face),
      Effect.catch((error) => Effect.as(complain(exchange, error), faceOf(error))),
      Effect.map((shown) => respondError(exchange, shown))
    )
  })

  /** For an exchange that never reached its own end: the client left, or something broke. */
  const abandon = (exchange: Exchange, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> =>
    exchange.concluded
      ? Effect.void
      : Effect.catch(pipeline.conclude(exchange, unfinished(exit)), (error) =>
          named(exchange, Effect.logWarning("the audit row of an abandoned request is late", error.cause))
        )

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
      Effect.catch((error) =>
        complain(exchange, error).pipe(
          Effect.andThen(exchange.caller === undefined && isTheirs(error) ? tarpit.turn : Effect.void),
          Effect.andThen(refuse(exchange, faceOf(error)))
        )
      ),
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
