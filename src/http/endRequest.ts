/**
 * The end of every audited request, and its only error handler. A handler makes a `Reply` or fails. In both cases the
 * request is charged and audited here, and then the client sees the end.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import { HttpServerError, type HttpServerResponse } from "effect/http"
import type { GatewayError } from "../domain/Errors.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import { withRequestSpan } from "./requestSpan.ts"
import { Sampling } from "../observability/sampling.ts"
import { Traced } from "../observability/Trace.ts"
import { makeFinish } from "../request/finish.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { internalError, toErrorResponse } from "./errors/errorResponses.ts"
import { makeRefuse } from "./refuse.ts"
import type { Reply } from "./Reply.ts"

type Response = HttpServerResponse.HttpServerResponse

export const makeEndRequest = Effect.gen(function* () {
  const [{ finish, release }, { log }] = [yield* makeFinish, yield* FailureLog]
  const [isSampled, traced] = [yield* Sampling, yield* Traced]
  const { refuse, refuseDefect, rowWhenLeft, spendFreeWork } = yield* makeRefuse

  /** Sends a reply after the request is charged and audited. When that fails, the client gets an error instead. */
  const send = (context: RequestContext, reply: Reply): Effect.Effect<Response> => {
    const sent = finish(context, reply.ending).pipe(
      Effect.matchCauseEffect({
        onSuccess: () => Effect.void,
        onFailure: (cause) => {
          const error = Cause.findErrorOption(cause)
          return error._tag === "Some"
            ? Effect.as(log(context, error.value), toErrorResponse(error.value))
            : Effect.as(withRequestId(context, Effect.logError("defect", cause)), internalError)
        }
      }),
      // A client that left does not wait for the rest.
      Effect.flatMap((error) =>
        Effect.interruptible(Effect.suspend(() => (error === undefined ? reply.send : reply.fail(error))))
      )
    )
    return reply.ending.slot === "kept" ? Effect.ensuring(sent, release(context)) : sent
  }

  /** Ends a request without a reply: its client left, the process stops, or its refusal had a defect. */
  const abandon = Effect.fnUntraced(function* (context: RequestContext, cause: Cause.Cause<never>) {
    const outcome = outcomeOf(cause)
    const row = outcome === outcomes.clientLeft ? rowWhenLeft(context) : "own"
    spendFreeWork(context)
    yield* Effect.catch(finish(context, { outcome, row, slot: "freed" }), (error) =>
      withRequestId(context, Effect.logWarning("audit row late", error.cause))
    )
    return yield* Effect.failCause(cause)
  })

  const end = Effect.fnUntraced(function* <R>(
    context: RequestContext,
    handler: Effect.Effect<Reply, GatewayError, R>
  ): Effect.fn.Return<Response, never, Exclude<R, Scope.Scope>> {
    const scope = Scope.makeUnsafe()
    // The server runs the app uninterruptibly. Without this, a client that leaves would not be noticed.
    const handled = yield* Effect.exit(Effect.interruptible(Scope.provide(handler, scope)))
    if (Exit.isSuccess(handled)) spendFreeWork(context)
    const answered = Exit.isSuccess(handled) && handled.value.ending.outcome === outcomes.answered
    // When a request has failed, its backend call ends first. An answer may hold memory until it is sent.
    if (!answered) yield* Scope.close(scope, handled)
    const replied = Exit.isSuccess(handled)
      ? handled
      : yield* handled.pipe(
          Effect.catch((error) => refuse(context, error)),
          Effect.catchDefect((defect) => refuseDefect(context, defect)),
          Effect.exit
        )
    if (Exit.isFailure(replied)) return yield* abandon(context, replied.cause)
    const sent = send(context, replied.value)
    return yield* answered ? Effect.ensuring(sent, Scope.close(scope, Exit.void)) : sent
  }, Effect.uninterruptible)

  return <R>(context: RequestContext, handler: Effect.Effect<Reply, GatewayError, R>) =>
    traced ? withRequestSpan(context, isSampled, end(context, handler)) : end(context, handler)
})

export type EndRequest = Effect.Success<typeof makeEndRequest>

/** 499 when the client left, 503 when this process stopped. */
const outcomeOf = (cause: Cause.Cause<never>): Outcome => {
  const interrupts = cause.reasons.filter((reason) => reason._tag === "Interrupt")
  if (interrupts.length === 0) return outcomes.internalError
  return interrupts.some((reason) => reason.annotations.has(HttpServerError.ClientAbort.key))
    ? outcomes.clientLeft
    : outcomes.unavailable
}
