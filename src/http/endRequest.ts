/**
 * The end of every audited request, and its only error handler. A handler makes a `Reply` or fails. In both cases the
 * request is charged and audited here, and then the client sees the end.
 */
import { Array as Arr, Cause, Effect, Exit, identity, Scope, Stream } from "effect"
import { HttpServerError, HttpServerResponse } from "effect/http"
import { BackendFailed, type GatewayError, type Unavailable } from "../domain/Errors.ts"
import { refusalOf } from "../domain/refusal.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import { withRequestSpan } from "./requestSpan.ts"
import { Sampling, Traced } from "../observability/Trace.ts"
import { type Ending, makeFinish } from "../request/finish.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errors/errorResponses.ts"
import { makeRefuse, type Refusal } from "./refuse.ts"
import type { ObjectReply, Reply, StreamReply } from "./Reply.ts"
import { headersOf, jsonType, respondError, respondText } from "./respond.ts"
import { inPieces, pieceBytes, readAhead } from "./unread.ts"

type Response = HttpServerResponse.HttpServerResponse

export const makeEndRequest = Effect.gen(function* () {
  const finish = yield* makeFinish
  const { log } = yield* FailureLog
  const isSampled = yield* Sampling
  const traced = yield* Traced
  const { refuse, refuseDefect, rowWhenLeft, spendFreeWork } = yield* makeRefuse

  /** Charges and audits an answer. */
  const finishAnswer = (context: RequestContext) =>
    finish(context, { outcome: outcomes.answered, row: "own" })

  /** What a client gets instead of an answer that fails, or that could not be charged and audited. It is logged. */
  const failureOf = (
    context: RequestContext,
    cause: Cause.Cause<GatewayError>
  ): Effect.Effect<ErrorResponse> => {
    const error = Cause.findErrorOption(cause)
    if (error._tag === "Some") context.detail = refusalOf(error.value)
    return error._tag === "Some"
      ? Effect.as(log(context, error.value), toErrorResponse(error.value))
      : Effect.as(withRequestId(context, Effect.logError("defect", cause)), internalError)
  }

  /** Charges and audits a refusal. One that cannot be audited is told as that, and logged. */
  const finishRefusal = (
    context: RequestContext,
    refusal: Refusal
  ): Effect.Effect<ErrorResponse, Unavailable> =>
    finish(context, endingOf(refusal)).pipe(
      Effect.as(refusal.response),
      Effect.catchCauseIf(
        (unfinished) => !Cause.hasInterrupts(unfinished),
        (unfinished) => failureOf(context, unfinished)
      )
    )

  const respondObject = Effect.fnUntraced(function* (context: RequestContext, { body, share }: ObjectReply) {
    const contentLength = body.reduce((bytes, part) => bytes + Buffer.byteLength(part), 0)
    yield* finishAnswer(context)
    if (contentLength <= pieceBytes) return respondText(context, body.join(""))
    return HttpServerResponse.stream(inPieces(body, contentLength, share), {
      contentType: jsonType,
      contentLength,
      headers: headersOf(context)
    })
  })

  /** The end of an answer whose head is sent. It is the last thing that the client gets. */
  const failStream = Effect.fnUntraced(function* (
    context: RequestContext,
    { encoder }: StreamReply,
    cause: Cause.Cause<GatewayError | Cause.Done>
  ) {
    // An answer ends with its final frame.
    const failure = Cause.map(cause, (error) =>
      Cause.isDone(error) ? new BackendFailed({ fault: "cut" }) : error
    )
    const response = yield* failureOf(context, failure)
    const told =
      context.outcome === undefined ? yield* finishRefusal(context, { response, row: "own" }) : response
    return Buffer.from(encoder.failure(told, context.arrival.requestId))
  })

  /**
   * The headers go out with the first frame, which is already in, or when the client is told that it waits. Only the final
   * frame waits for the end of the request, also when it came together with text. An interruption stays an interruption.
   */
  const respondStream = Effect.fnUntraced(function* (context: RequestContext, reply: StreamReply) {
    const services = yield* Effect.context<never>()
    // The final frame is pulled when the client has taken everything before it.
    const ahead = yield* readAhead(reply, (final) =>
      Effect.map(finishAnswer(context), () => reply.encoder.frames([final]))
    )
    const bytes = ahead.pull.pipe(
      Effect.catchCauseIf(
        (cause) => !Cause.hasInterrupts(cause),
        (cause) => failStream(context, reply, cause)
      ),
      Effect.map(Arr.of),
      // The server pulls outside of the span of the request, which log lines name.
      traced ? Effect.provideContext(services) : identity
    )
    const pull = Effect.suspend(() =>
      context.outcome === undefined || ahead.hasRest() ? bytes : Cause.done()
    )
    return HttpServerResponse.stream(Stream.fromPull(Effect.succeed(pull)), {
      contentType: reply.contentType,
      headers: { "x-accel-buffering": "no", ...headersOf(context) }
    })
  })

  const respond = (context: RequestContext, reply: Reply): Effect.Effect<Response, never, Scope.Scope> => {
    spendFreeWork(context)
    return reply._tag === "Stream"
      ? respondStream(context, reply)
      : Effect.catchCause(respondObject(context, reply), (cause) =>
          Effect.map(failureOf(context, cause), (error) => respondError(context, error))
        )
  }

  /** Refuses a request that failed before its answer began. An interruption stays one: its client left while it waited. */
  const respondFailure = (
    context: RequestContext,
    cause: Cause.Cause<GatewayError>
  ): Effect.Effect<Response, GatewayError> => {
    if (Cause.hasInterrupts(cause)) return Effect.failCause(cause)
    const error = Cause.findErrorOption(cause)
    const refused = error._tag === "Some" ? refuse(context, error.value) : refuseDefect(context, cause)
    return refused.pipe(
      Effect.flatMap((refusal) => finishRefusal(context, refusal)),
      Effect.map((response) => respondError(context, response))
    )
  }

  /** Ends a request that has no answer, because its client left or the process stops. */
  const abandon = (context: RequestContext, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (context.outcome !== undefined) return Effect.void
      const outcome = outcomeOf(exit)
      spendFreeWork(context)
      return Effect.catch(
        finish(context, {
          outcome,
          row: outcome === outcomes.clientLeft ? rowWhenLeft(context) : "own"
        }),
        (error) => withRequestId(context, Effect.logWarning("audit row late", error.cause))
      )
    })

  /** The server runs it uninterruptibly, and closes the Scope after the last byte. */
  const end = <R>(context: RequestContext, handler: Effect.Effect<Reply, GatewayError, R>) =>
    Effect.flatMap(Effect.scope, (scope) =>
      Scope.addFinalizerExit(scope, (exit) => abandon(context, exit))
    ).pipe(
      // Without this, a client that leaves would not be noticed.
      Effect.andThen(Effect.interruptible(handler)),
      Effect.matchCauseEffect({
        onSuccess: (reply) => respond(context, reply),
        onFailure: (cause) => respondFailure(context, cause)
      })
    )

  return <R>(context: RequestContext, handler: Effect.Effect<Reply, GatewayError, R>) =>
    traced ? withRequestSpan(context, isSampled, end(context, handler)) : end(context, handler)
})

export type EndRequest = Effect.Success<typeof makeEndRequest>

const endingOf = ({ response: { status, type }, row }: Refusal): Ending => ({
  outcome: { status, type },
  row
})

/** 499 when the client left, 503 when this process stopped. */
const outcomeOf = (exit: Exit.Exit<unknown, unknown>): Outcome => {
  const interrupts = Exit.isFailure(exit) ? exit.cause.reasons.filter(Cause.isInterruptReason) : []
  if (interrupts.length === 0) return outcomes.internalError
  return interrupts.some(({ annotations }) => annotations.has(HttpServerError.ClientAbort.key))
    ? outcomes.clientLeft
    : outcomes.unavailable
}
