/** The inference endpoints: the story of one request, told once for both surfaces. */
import type { IncomingMessage } from "node:http"
import { Effect, Stream } from "effect"
import { HttpServerResponse } from "effect/http"
import { BackendFailed, type ShuttingDown } from "../domain/Errors.ts"
import { admit } from "../pipeline/admit.ts"
import { conclude } from "../pipeline/conclude.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { type Answer as Metered, forward } from "../pipeline/forward.ts"
import { authenticate } from "./authenticate.ts"
import { readBody } from "./body.ts"
import type { Bounds, Dialect, Encoder } from "./Dialect.ts"
import { Drain } from "./Drain.ts"
import { interrupted, logFailure, type Services } from "./endpoint.ts"
import { faceOf, internalError } from "./faces.ts"
import { Fold } from "./fold.ts"
import { headersOf, respondJson } from "./respond.ts"

export interface InferenceOptions extends Bounds {
  readonly maxRequestBodyBytes: number
  readonly concurrencyLeaseS: number
}

export const inference = Effect.fnUntraced(function* (
  exchange: Exchange,
  incoming: IncomingMessage,
  dialect: Dialect,
  options: InferenceOptions
) {
  const key = yield* authenticate(exchange, incoming)
  const body = yield* readBody(options.maxRequestBodyBytes)
  const request = yield* dialect.decode(body, options)
  exchange.streamed = request.stream
  const maxTokens = request.maxTokens ?? options.numPredictCap
  const permit = yield* admit(exchange, key, request, maxTokens)
  const drain = yield* Drain
  const answer = yield* forward(exchange, permit, request, maxTokens, options.concurrencyLeaseS).pipe(
    drain.within,
    // Nobody saw anything of it: nothing is charged.
    Effect.tapErrorTag("ShuttingDown", () => Effect.sync(() => void (exchange.sent = false))),
    Effect.map(drain.withinStream)
  )
  const encoder = dialect.encoder(request)
  return request.stream
    ? yield* streamed(exchange, answer, encoder, dialect.contentType)
    : yield* folded(exchange, answer, encoder)
})

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
