/**
 * The end of every audited request, and its only error handler. A handler makes a `Reply` or fails. In both cases the
 * request is charged and audited here, and then the client sees the end.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import { HttpServerError, type HttpServerResponse } from "effect/http"
import type { GatewayError, Unavailable } from "../domain/Errors.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { unlessVoid } from "../infra/v8/unlessVoid.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import { withRequestSpan } from "./requestSpan.ts"
import { Sampling } from "../observability/sampling.ts"
import { Traced } from "../observability/Trace.ts"
import { makeFinish } from "../request/finish.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errors/errorResponses.ts"
import { makeRefuse } from "./refuse.ts"
import type { Reply } from "./Reply.ts"

type Response = HttpServerResponse.HttpServerResponse

export const makeEndRequest = Effect.gen(function* () {
  const [{ finish, release }, { log }] = [yield* makeFinish, yield* FailureLog]
  const [isSampled, traced] = [yield* Sampling, yield* Traced]
  const { refuse, refuseDefect, rowWhenLeft, spendFreeWork } = yield* makeRefuse

  /** Sends a reply after the request is charged and audited. When that fails, the client gets an error instead. */
  const send = (context: RequestContext, reply: Reply): Effect.Effect<Response> => {
    const sent = Effect.matchCauseEffect(finish(context, reply.ending), {
      // A client that left does not wait for the rest.
      onSuccess: () => Effect.interruptible(reply.send),
      onFailure: (cause) =>
        Effect.flatMap(logged(context, cause), (error) => Effect.interruptible(reply.fail(error)))
    })
    return reply.ending.slot === "kept" ? Effect.ensuring(sent, release(context)) : sent
  }

  /** Logs why a request could not be finished. Returns what its client gets instead of the answer. */
  const logged = (context: RequestContext, cause: Cause.Cause<Unavailable>): Effect.Effect<ErrorResponse> => {
    const error = Cause.findErrorOption(cause)
    return error._tag === "Some"
      ? Effect.as(log(context, error.value), toErrorResponse(error.value))
      : Effect.as(withRequestId(context, Effect.logError("defect", cause)), internalError)
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

  /** Sends a reply, and then ends what the request holds, which an answer may need until it is sent. */
  const sendReply = (
    context: RequestContext,
    reply: Reply,
    scope: Scope.Closeable
  ): Effect.Effect<Response> => {
    spendFreeWork(context)
    const isAnswer = reply.ending.outcome === outcomes.answered
    return isAnswer
      ? Effect.onExitPrimitive(send(context, reply), () => unlessVoid(Scope.closeUnsafe(scope, Exit.void)))
      : Effect.andThen(Scope.close(scope, Exit.void), send(context, reply))
  }

  /** The call of a failed request ends before its refusal is sent. */
  const endFailed = (
    context: RequestContext,
    cause: Cause.Cause<GatewayError>,
    scope: Scope.Closeable
  ): Effect.Effect<Response> =>
    Effect.andThen(
      Scope.close(scope, Exit.failCause(cause)),
      Effect.failCause(cause).pipe(
        Effect.catch((error) => refuse(context, error)),
        Effect.catchDefect((defect) => refuseDefect(context, defect)),
        Effect.matchCauseEffect({
          onSuccess: (reply) => send(context, reply),
          onFailure: (left) => abandon(context, left)
        })
      )
    )

  const end = <R>(
    context: RequestContext,
    handler: Effect.Effect<Reply, GatewayError, R>
  ): Effect.Effect<Response, never, Exclude<R, Scope.Scope>> => {
    const scope = Scope.makeUnsafe()
    // The server runs the app uninterruptibly. Without this, a client that leaves would not be noticed.
    const handled = Effect.interruptible(Scope.provide(handler, scope))
    return Effect.uninterruptible(
      Effect.matchCauseEffect(handled, {
        onSuccess: (reply) => sendReply(context, reply, scope),
        onFailure: (cause) => endFailed(context, cause, scope)
      })
    )
  }

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
