/** The model endpoints: the story of one request, told once for both surfaces. */
import type { IncomingMessage } from "node:http"
import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { BackendFailed, type ShuttingDown } from "../domain/Errors.ts"
import { admit } from "../pipeline/admit.ts"
import { conclude } from "../pipeline/conclude.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { type Answer as Metered, forward } from "../pipeline/forward.ts"
import { step } from "../pipeline/Trace.ts"
import { authenticate } from "./authenticate.ts"
import { readBody } from "./body.ts"
import type { Bounds, Decode, Dialect, Encoder, ObjectDialect } from "./Dialect.ts"
import { Drain } from "./Drain.ts"
import { interrupted, logFailure, type Services } from "./endpoint.ts"
import { faceOf, internalError } from "./faces.ts"
import { Fold } from "./fold.ts"
import { headersOf, respondJson } from "./respond.ts"

export interface InferenceOptions extends Bounds {
  readonly maxRequestBodyBytes: number
  readonly concurrencyLeaseS: number
}

/** Who asks, what for, and whether they may: the same for every model endpoint. */
const admitted = Effect.fnUntraced(function* (
  exchange: Exchange,
  incoming: IncomingMessage,
  decode: Decode,
  options: InferenceOptions
) {
  const key = yield* step("authenticate")(authenticate(exchange, incoming))
  const body = yield* readBody(options.maxRequestBodyBytes)
  const request = yield* decode(body, options)
  exchange.streamed = request.stream
  const maxTokens = request.maxTokens ?? options.numPredictCap
  return { permit: yield* step("admit")(admit(exchange, key, request, maxTokens)), request, maxTokens }
})

/** Chat and generate, of either surface. */
export const inference = Effect.fnUntraced(function* (
  exchange: Exchange,
  incoming: IncomingMessage,
  dialect: Dialect,
  options: InferenceOptions
) {
  const { permit, request, maxTokens } = yield* admitted(exchange, incoming, dialect.decode, options)
  const drain = yield* Drain
  const answer = yield* beforeTheGraceEnds(
    exchange,
    forward(exchange, permit, request, maxTokens, options.concurrencyLeaseS)
  )
  const encoder = dialect.encoder(request)
  return request.stream
    ? yield* streamed(exchange, drain.withinStream(answer), encoder, dialect.contentType)
    : yield* folded(exchange, drain.withinStream(answer), encoder)
})

/** Embeddings and descriptions of models: one question, one object. */
export const answered = Effect.fnUntraced(function* <A>(
  exchange: Exchange,
  incoming: IncomingMessage,
  dialect: ObjectDialect<A>,
  options: InferenceOptions
) {
  const { permit, request } = yield* admitted(exchange, incoming, dialect.decode, options)
  const answer = yield* beforeTheGraceEnds(
    exchange,
    dialect.ask(exchange, permit, request, options.concurrencyLeaseS)
  )
  return respondJson(exchange, dialect.encode(request, answer))
})

/** When the process stops first, nobody has seen anything of the answer: nothing is charged. */
const beforeTheGraceEnds = <A, E, R>(exchange: Exchange, answer: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Drain, (drain) => drain.within(answer)).pipe(
    step("backend"),
    Effect.tapErrorTag("ShuttingDown", () => Effect.sync(() => void (exchange.sent = false)))
  )

type Answer = Stream.Stream<
  Stream.Success<Metered>,
  Stream.Error<Metered> | ShuttingDown,
  Stream.Services<Metered>
>

const utf8 = new TextEncoder()

/**
 * The headers go out with the first frame, which is already in. A failure after that is one last line in the
 * surface's own words; an interruption stays one.
 */
const streamed = Effect.fnUntraced(function* (
  exchange: Exchange,
  answer: Answer,
  encoder: Encoder,
  contentType: string
) {
  const services = yield* Effect.context<Services>()
  const bytes = answer.pipe(
    Stream.mapArray((chunk) => [utf8.encode(encoder.frames(chunk))] as const),
    Stream.catchCauseIf(
      (cause) => !interrupted(cause),
      (cause) => {
        const failure = cause.reasons.find((reason) => reason._tag === "Fail")
        const face = failure === undefined ? internalError : faceOf(failure.error)
        const log = failure === undefined ? Effect.logError("defect", cause) : logFailure(failure.error)
        return log.pipe(
          Effect.andThen(Effect.ignore(conclude(exchange, { status: face.status, errorType: face.type }))),
          Effect.as(utf8.encode(encoder.failure(face, exchange.arrival.requestId))),
          Stream.fromEffect
        )
      }
    ),
    Stream.provideContext(services)
  )
  return HttpServerResponse.stream(bytes, {
    contentType,
    headers: { ...headersOf(exchange), "x-accel-buffering": "no" }
  })
})

const folded = Effect.fnUntraced(function* (exchange: Exchange, answer: Answer, encoder: Encoder) {
  const fold = new Fold()
  yield* Stream.runForEachArray(answer, (chunk) =>
    Effect.sync(() => {
      for (const frame of chunk) fold.add(frame)
    })
  )
  const whole = fold.whole
  if (whole === undefined) return yield* new BackendFailed({ fault: "cut" })
  return respondJson(exchange, encoder.whole(whole))
})
