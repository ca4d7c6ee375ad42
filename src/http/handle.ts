/** The model endpoints: the story of one request, told once for both surfaces. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Array as Arr, type Cause, Effect, Stream } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { BackendFailed, type Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { Frame } from "../domain/Frame.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import type { UnaryCall } from "../request/unary.ts"
import type { Answer as Frames } from "../request/meterStream.ts"
import { stepOf } from "../observability/Trace.ts"
import { type Answer, leavesAtOnce, waitingFor, written } from "./answer.ts"
import { AnswerBody } from "./server/AnswerBody.ts"
import { authenticate } from "./authenticate.ts"
import { type Body, readBody } from "./body.ts"
import { withRequestId } from "../observability/failureLog.ts"
import type { Desk } from "./Desk.ts"
import type { Bounds, Decode, Dialect, Encoder, ObjectDialect } from "./dialect/Dialect.ts"
import { interrupted } from "./endpoint.ts"
import { toErrorResponse, internalError } from "./errorResponses.ts"
import { Fold } from "./dialect/fold.ts"
import { noContext, sealFor, withContext } from "./dialect/native/contexts.ts"
import { withPromptSize } from "./dialect/promptEstimate.ts"
import type { ReceivedBody } from "./server/ReceivedBody.ts"
import { headersOf } from "./respond.ts"

export interface InferenceOptions extends Bounds {
  readonly maxRequestBodyBytes: number
}

export const makeInference = (desk: Desk, answer: Answer, options: InferenceOptions) => {
  const { bodies, complain, contexts, freeWork, pipeline, traced, unread } = desk
  const step = stepOf(traced)

  /** What is asked for, and whether it may be. */
  const decided = Effect.fnUntraced(function* (
    context: RequestContext,
    key: Evidence<"KeyStore", Caller>,
    body: Body,
    decode: Decode
  ) {
    const decoded = yield* decode(body, options)
    const request = withPromptSize(yield* withContext(contexts, key.value.keyId, decoded))
    context.streamed = request.stream
    context.relaxed = request.relaxed ?? []
    const maxTokens = request.maxTokens ?? options.numPredictCap
    const permit = yield* step("admit")(pipeline.admit(context, key, request, maxTokens))
    return { permit, request, maxTokens }
  })

  /** Who asks, what for, and whether they may: the same for every model endpoint. */
  const admitted = Effect.fnUntraced(function* (
    context: RequestContext,
    incoming: IncomingMessage,
    response: ServerResponse,
    received: ReceivedBody,
    decode: Decode
  ) {
    const key = yield* step("authenticate")(authenticate(desk, context, incoming))
    yield* unread.room(key.value)
    return yield* bodies.withShare(key.value, (share) =>
      Effect.flatMap(
        readBody(desk, incoming, response, received, share, options.maxRequestBodyBytes, (bytes) => {
          context.bodyBytes = bytes
          return freeWork.check(key.value)
        }),
        (body) => decided(context, key, body, decode)
      )
    )
  })

  /** What an answer that has failed still says, in the surface's own words, once its row is written. */
  const lastWords = (
    context: RequestContext,
    encoder: Encoder,
    cause: Cause.Cause<Stream.Error<Frames> | Unavailable>
  ) => {
    const failure = cause.reasons.find((reason) => reason._tag === "Fail")
    const face = failure === undefined ? internalError : toErrorResponse(failure.error)
    const log =
      failure === undefined
        ? withRequestId(context, Effect.logError("defect", cause))
        : complain(context, failure.error)
    return log.pipe(
      Effect.andThen(
        Effect.catch(pipeline.finish(context, { status: face.status, errorType: face.type }), (error) =>
          complain(context, error)
        )
      ),
      Effect.map(() => encoder.failure(face, context.arrival.requestId))
    )
  }

  /**
   * The headers go out with the first frame, which is already in, and the last frame when the request is finished. What
   * came with the last frame need not wait for that. A failure is one last line; an interruption stays one.
   */
  const streamed = (
    context: RequestContext,
    incoming: IncomingMessage,
    response: ServerResponse,
    frames: Frames,
    dialect: Dialect,
    encoder: Encoder
  ) =>
    Effect.suspend(() => {
      const body = new AnswerBody(
        response,
        { "content-type": dialect.contentType, "x-accel-buffering": "no", ...headersOf(context) },
        waitingFor(unread, context, incoming)
      )
      const finishWith = (frame: Frame): Effect.Effect<void, Unavailable> => {
        const text = encoder.frames([frame])
        const keepSlot = !leavesAtOnce(text, incoming, response)
        const written = Effect.andThen(
          pipeline.finish(context, { status: 200, keepSlot }),
          Effect.suspend(() => body.write(text))
        )
        return keepSlot
          ? Effect.ensuring(
              Effect.andThen(
                written,
                Effect.suspend(() => body.endAndWait())
              ),
              pipeline.release(context)
            )
          : written
      }
      return Stream.runForEachArray(frames, (chunk) => {
        const last = Arr.lastNonEmpty(chunk)
        if (!last.done) return body.write(encoder.frames(chunk))
        const before = Arr.initNonEmpty(chunk)
        if (!Arr.isArrayNonEmpty(before)) return finishWith(last)
        return Effect.andThen(
          body.write(encoder.frames(before)),
          Effect.suspend(() => finishWith(last))
        )
      }).pipe(
        Effect.catchCause((cause) =>
          interrupted(cause)
            ? Effect.failCause(cause)
            : Effect.flatMap(lastWords(context, encoder, cause), (text) => body.write(text))
        ),
        Effect.map(() => {
          if (!response.writableEnded) body.end()
          return written
        })
      )
    })

  const folded = Effect.fnUntraced(function* (frames: Frames, encoder: Encoder) {
    const fold = new Fold()
    yield* Stream.runForEachArray(frames, (chunk) => {
      for (const frame of chunk) fold.add(frame)
      return Effect.void
    })
    const whole = fold.whole
    if (whole === undefined) return yield* new BackendFailed({ fault: "cut" })
    return JSON.stringify(encoder.whole(whole))
  })

  /** Chat and generate, of either surface. */
  const generated = Effect.fnUntraced(function* (
    context: RequestContext,
    incoming: IncomingMessage,
    response: ServerResponse,
    received: ReceivedBody,
    dialect: Dialect
  ) {
    const { maxTokens, permit, request } = yield* admitted(
      context,
      incoming,
      response,
      received,
      dialect.decode
    )
    const frames = yield* step("backend")(pipeline.forward(context, permit, request, maxTokens))
    const { caller, model } = permit
    // Only generate has a context to give.
    const seal =
      request.kind === "generate"
        ? yield* sealFor(contexts, { keyId: caller.keyId, digest: model.digest })
        : noContext
    const encoder = dialect.encoder(request, seal)
    return request.stream
      ? yield* streamed(context, incoming, response, frames, dialect, encoder)
      : yield* answer(context, incoming, response, yield* folded(frames, encoder))
  })

  /** Embeddings and descriptions of models: one question, one object. */
  const answeredBy = <A>(call: UnaryCall<A>) =>
    Effect.fnUntraced(function* (
      context: RequestContext,
      incoming: IncomingMessage,
      response: ServerResponse,
      received: ReceivedBody,
      dialect: ObjectDialect<A>
    ) {
      const { permit, request } = yield* admitted(context, incoming, response, received, dialect.decode)
      const said = yield* step("backend")(call(context, permit, request))
      return yield* answer(context, incoming, response, dialect.encode(request, said))
    })

  return { generated, embedded: answeredBy(pipeline.embed), shown: answeredBy(pipeline.show) }
}
