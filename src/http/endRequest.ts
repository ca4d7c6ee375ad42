/**
 * The end of every audited request, and its only error handler. A handler makes a `Reply` or fails. In both cases the
 * request is charged and audited here, and then the client sees the end.
 */
import { Array as Arr, Cause, Effect, Exit, Fiber, Scope } from "effect"
import { HttpServerError, HttpServerResponse } from "effect/http"
import type { Frame, Frames } from "../domain/Frame.ts"
import { BackendFailed, type GatewayError, type Unavailable } from "../domain/Errors.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import { withRequestSpan } from "./requestSpan.ts"
import { Sampling, Traced } from "../observability/Trace.ts"
import { type Ending, makeFinish } from "../request/finish.ts"
import { readAnswer } from "../request/meterStream.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errors/errorResponses.ts"
import { AnswerWriter, pieceBytes } from "./AnswerWriter.ts"
import { makeRefuse, type Refusal } from "./refuse.ts"
import type { Exchange } from "./Exchange.ts"
import type { ObjectReply, Reply, StreamReply } from "./Reply.ts"
import { headersOf, jsonType, respondError } from "./respond.ts"
import { ClientTimeouts } from "./server/ClientTimeouts.ts"
import { inPieces } from "./unread.ts"

type Response = HttpServerResponse.HttpServerResponse

export const makeEndRequest = Effect.gen(function* () {
  const finish = yield* makeFinish
  const { log } = yield* FailureLog
  const isSampled = yield* Sampling
  const { silence } = yield* ClientTimeouts
  const traced = yield* Traced
  const { refuse, refuseDefect, rowWhenLeft, spendFreeWork } = yield* makeRefuse

  /** What a client gets instead of an answer that fails, or that could not be charged and audited. It is logged. */
  const failureOf = (context: RequestContext, cause: Cause.Cause<GatewayError>): Effect.Effect<Refusal> => {
    const error = Cause.findErrorOption(cause)
    return error._tag === "Some"
      ? Effect.as(log(context, error.value), {
          response: toErrorResponse(error.value),
          row: "own",
          detail: error.value.refusal
        })
      : Effect.as(withRequestId(context, Effect.logError("defect", cause)), {
          response: internalError,
          row: "own"
        })
  }

  /** Charges and audits a refusal. Without its row the client gets a 503, and the failure is logged. */
  const finishRefusal = (
    context: RequestContext,
    refusal: Refusal
  ): Effect.Effect<ErrorResponse, Unavailable> =>
    finish(context, endingOf(refusal)).pipe(
      Effect.as(refusal.response),
      Effect.catchCauseIf(
        (unfinished) => !Cause.hasInterrupts(unfinished),
        (unfinished) => Effect.map(failureOf(context, unfinished), ({ response }) => response)
      )
    )

  /** The client gets no object when the request could not be charged and audited. */
  const respondUnfinished = (context: RequestContext, cause: Cause.Cause<GatewayError>) =>
    Effect.map(failureOf(context, cause), ({ response }) => respondError(context, response))

  /** Answers with one object. A small one goes to Node's response as a streamed answer does. */
  const respondObject = ({ context, response }: Exchange, { body, share }: ObjectReply) => {
    const write = () => {
      const contentLength = body.reduce((bytes, part) => bytes + Buffer.byteLength(part), 0)
      const headers = headersOf(context)
      if (contentLength > pieceBytes) {
        const pieces = inPieces(body, contentLength, share)
        return HttpServerResponse.stream(pieces, { contentType: jsonType, contentLength, headers })
      }
      response.writeHead(200, { ...headers, "content-type": jsonType, "content-length": contentLength })
      response.end(body.join(""))
      return isSent
    }
    return Effect.matchCauseEffect(finish(context, answered), {
      onFailure: (cause) => respondUnfinished(context, cause),
      onSuccess: () => Effect.sync(write)
    })
  }

  /** The end of an answer whose head is sent. It is the last thing that the client gets. */
  const failStream = Effect.fnUntraced(function* (
    context: RequestContext,
    { encoder }: StreamReply,
    cause: Cause.Cause<GatewayError>
  ) {
    const failure = yield* failureOf(context, cause)
    const told = context.cost.ended === undefined ? yield* finishRefusal(context, failure) : failure.response
    return encoder.failure(told, context.arrival.requestId)
  })

  /** Writes an answer as the model server sends it. Only its final frame waits, for the client and for the end of the request. */
  const writeAnswer = (
    { context, scope }: Exchange,
    { answer, encoder }: StreamReply,
    writer: AnswerWriter
  ): Effect.Effect<void, GatewayError> => {
    let final: Frame | undefined
    const write = (frames: Frames) => {
      const last = Arr.lastNonEmpty(frames)
      if (last.done) final = last
      writer.write(encoder.frames(last.done ? Arr.initNonEmpty(frames) : frames))
    }
    return readAnswer(answer, scope, write, (): Effect.Effect<void, BackendFailed | Unavailable> => {
      const last = final
      if (last === undefined) return Effect.fail(new BackendFailed({ fault: "cut" }))
      // The client has taken everything before it.
      return Effect.map(Effect.andThen(writer.taken, finish(context, answered)), () =>
        writer.write(encoder.frames([last]))
      )
    })
  }

  /** Tells a client of server-sent events that it waits, now and in every later silence, until the answer is over. */
  const keepAlive = <A, E>(
    { encoder, isLate = false }: StreamReply,
    writer: AnswerWriter,
    written: Effect.Effect<A, E>
  ): Effect.Effect<A, E> => {
    const { waiting } = encoder
    if (waiting === undefined) return written
    const say = Effect.sync(() => writer.breakSilence(waiting))
    if (isLate) writer.breakSilence(waiting)
    return Effect.flatMap(Effect.forkChild(Effect.forever(Effect.delay(say, silence))), (saying) =>
      Effect.ensuring(written, Fiber.interrupt(saying))
    )
  }

  /** The headers go out with the first frame, which is already in, or when the client is told that it waits. */
  const respondStream = (exchange: Exchange, reply: StreamReply): Effect.Effect<Response, GatewayError> => {
    const { context, response } = exchange
    const { contentType, encoder, share } = reply
    const writer = new AnswerWriter(response, share, encoder.kept)
    response.writeHead(200, {
      "content-type": contentType,
      "x-accel-buffering": "no",
      ...headersOf(context)
    })
    return keepAlive(reply, writer, writeAnswer(exchange, reply, writer)).pipe(
      // An interruption stays an interruption.
      Effect.catchCauseIf(
        (cause) => !Cause.hasInterrupts(cause),
        (cause) => Effect.map(failStream(context, reply, cause), (text) => writer.write(text))
      ),
      Effect.andThen(writer.taken),
      Effect.interruptible,
      Effect.onInterrupt(() => Effect.sync(() => response.destroy())),
      Effect.map(() => {
        response.end()
        return isSent
      })
    )
  }

  const respond = (exchange: Exchange, reply: Reply): Effect.Effect<Response, GatewayError> => {
    const { context } = exchange
    spendFreeWork(context)
    return reply._tag === "Stream" ? respondStream(exchange, reply) : respondObject(exchange, reply)
  }

  /** Refuses a request that failed before its answer began. An interruption stays one: its client left while it waited. */
  const respondFailure = (
    context: RequestContext,
    cause: Cause.Cause<GatewayError>
  ): Effect.Effect<Response, GatewayError> => {
    if (Cause.hasInterrupts(cause)) return Effect.failCause(cause)
    // Its client may wait for the refusal. What it sent is not needed for that.
    context.share?.grow(0)
    const error = Cause.findErrorOption(cause)
    const refused = error._tag === "Some" ? refuse(context, error.value) : refuseDefect(context, cause)
    return refused.pipe(
      Effect.flatMap((refusal) => finishRefusal(context, refusal)),
      Effect.map((response) => respondError(context, response))
    )
  }

  /** Ends a request that has no answer, because its client left or the process stops. */
  const abandon = (context: RequestContext, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
    const outcome = outcomeOf(exit)
    spendFreeWork(context)
    const row = outcome === outcomes.clientLeft ? rowWhenLeft(context) : "own"
    return Effect.catch(finish(context, { outcome, row }), (error) =>
      withRequestId(context, Effect.logWarning("audit row late", error.cause))
    )
  }

  /** Runs when the Scope of a request closes. */
  const close = (context: RequestContext, exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> => {
    const free = Effect.sync(() => context.share?.close())
    return context.cost.ended === undefined ? Effect.ensuring(abandon(context, exit), free) : free
  }

  /** The server runs it uninterruptibly, and closes the Scope after the last byte. */
  const end = <R>(exchange: Exchange, handler: Effect.Effect<Reply, GatewayError, R>) => {
    const { context, scope } = exchange
    return Scope.addFinalizerExit(scope, (exit) => close(context, exit)).pipe(
      // Without this, a client that leaves would not be noticed.
      Effect.andThen(Effect.interruptible(handler)),
      Effect.matchCauseEffect({
        onSuccess: (reply) => respond(exchange, reply),
        onFailure: (cause) => respondFailure(context, cause)
      })
    )
  }

  return <R>(exchange: Exchange, handler: Effect.Effect<Reply, GatewayError, R>) =>
    traced ? withRequestSpan(exchange.context, isSampled, end(exchange, handler)) : end(exchange, handler)
})

/** An answer is charged, and has a row of its own. */
const answered: Ending = { outcome: outcomes.answered, row: "own" }

/** The response is written to Node's already. */
const isSent = HttpServerResponse.empty()

export type EndRequest = Effect.Success<typeof makeEndRequest>

const endingOf = ({ response: { status, type }, ...kept }: Refusal): Ending => ({
  outcome: { status, type },
  ...kept
})

/** 499 when the client left, 503 when this process stopped. */
const outcomeOf = (exit: Exit.Exit<unknown, unknown>): Outcome => {
  const interrupts = Exit.isFailure(exit) ? exit.cause.reasons.filter(Cause.isInterruptReason) : []
  if (interrupts.length === 0) return outcomes.internalError
  return interrupts.some(({ annotations }) => annotations.has(HttpServerError.ClientAbort.key))
    ? outcomes.clientLeft
    : outcomes.unavailable
}
