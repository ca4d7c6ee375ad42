/** The model endpoints: the story of one request, told once for both surfaces. */
import type { IncomingMessage, ServerResponse } from "node:http"
import { type Cause, Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { BackendFailed } from "../domain/Errors.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import type { Answer } from "../pipeline/forward.ts"
import { stepOf } from "../pipeline/Trace.ts"
import { authenticate } from "./authenticate.ts"
import { readBody } from "./body.ts"
import { named } from "./complaints.ts"
import type { Desk } from "./Desk.ts"
import type { Bounds, Decode, Dialect, Encoder, ObjectDialect } from "./Dialect.ts"
import { interrupted } from "./endpoint.ts"
import { faceOf, internalError } from "./faces.ts"
import { Fold } from "./fold.ts"
import { withPromptSize } from "./promptSize.ts"
import { headersOf, respondJson, respondText } from "./respond.ts"
import { StreamedBody } from "./StreamedBody.ts"

export interface InferenceOptions extends Bounds {
  readonly maxRequestBodyBytes: number
}

export const makeInference = (desk: Desk, options: InferenceOptions) => {
  const { complain, keys, pipeline, traced } = desk
  const step = stepOf(traced)

  /** Who asks, what for, and whether they may: the same for every model endpoint. */
  const admitted = Effect.fnUntraced(function* (
    exchange: Exchange,
    incoming: IncomingMessage,
    response: ServerResponse,
    decode: Decode
  ) {
    const key = yield* step("authenticate")(authenticate(keys, exchange, incoming))
    const body = yield* readBody(desk, incoming, response, options.maxRequestBodyBytes)
    const request = withPromptSize(yield* decode(body, options))
    exchange.streamed = request.stream
    const maxTokens = request.maxTokens ?? options.numPredictCap
    const permit = yield* step("admit")(pipeline.admit(exchange, key, request, maxTokens))
    return { permit, request, maxTokens }
  })

  /** What an answer that has failed still says, in the surface's own words, once its row is written. */
  const lastWords = (exchange: Exchange, encoder: Encoder, cause: Cause.Cause<Stream.Error<Answer>>) => {
    const failure = cause.reasons.find((reason) => reason._tag === "Fail")
    const face = failure === undefined ? internalError : faceOf(failure.error)
    const log =
      failure === undefined
        ? named(exchange, Effect.logError("defect", cause))
        : complain(exchange, failure.error)
    return log.pipe(
      Effect.andThen(
        Effect.ignore(pipeline.conclude(exchange, { status: face.status, errorType: face.type }))
      ),
      Effect.map(() => encoder.failure(face, exchange.arrival.requestId))
    )
  }

  /**
   * The headers go out with the first frame, which is already in. A failure after that is one last line; an interruption
   * stays one.
   */
  const streamed = (
    exchange: Exchange,
    response: ServerResponse,
    answer: Answer,
    dialect: Dialect,
    encoder: Encoder
  ) =>
    Effect.suspend(() => {
      const body = new StreamedBody(response, {
        "content-type": dialect.contentType,
        "x-accel-buffering": "no",
        ...headersOf(exchange)
      })
      return Stream.runForEachArray(answer, (chunk) => body.write(encoder.frames(chunk))).pipe(
        Effect.catchCause((cause) =>
          interrupted(cause)
            ? Effect.failCause(cause)
            : Effect.flatMap(lastWords(exchange, encoder, cause), (text) => body.write(text))
        ),
        Effect.map(() => {
          body.end()
          return written
        })
      )
    })

  /** Chat and generate, of either surface. */
  const generated = Effect.fnUntraced(function* (
    exchange: Exchange,
    incoming: IncomingMessage,
    response: ServerResponse,
    dialect: Dialect
  ) {
    const { maxTokens, permit, request } = yield* admitted(exchange, incoming, response, dialect.decode)
    const answer = yield* step("backend")(pipeline.forward(exchange, permit, request, maxTokens))
    const encoder = dialect.encoder(request)
    return request.stream
      ? yield* streamed(exchange, response, answer, dialect, encoder)
      : yield* folded(exchange, answer, encoder)
  })

  /** Embeddings and descriptions of models: one question, one object. */
  const answered = Effect.fnUntraced(function* <A>(
    exchange: Exchange,
    incoming: IncomingMessage,
    response: ServerResponse,
    dialect: ObjectDialect<A>
  ) {
    const { permit, request } = yield* admitted(exchange, incoming, response, dialect.decode)
    const answer = yield* step("backend")(dialect.ask(pipeline)(exchange, permit, request))
    return respondText(exchange, dialect.encode(request, answer))
  })

  return { generated, answered }
}

/** What is returned of a response that has been written: the server leaves it alone (`writableEnded`). */
const written = HttpServerResponse.empty({ status: 200 })

const folded = Effect.fnUntraced(function* (exchange: Exchange, answer: Answer, encoder: Encoder) {
  const fold = new Fold()
  yield* Stream.runForEachArray(answer, (chunk) => {
    for (const frame of chunk) fold.add(frame)
    return Effect.void
  })
  const whole = fold.whole
  if (whole === undefined) return yield* new BackendFailed({ fault: "cut" })
  return respondJson(exchange, encoder.whole(whole))
})
