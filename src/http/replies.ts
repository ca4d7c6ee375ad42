/**
 * Successful answers: one object, or a stream of frames.
 *
 * A small answer goes out in one write and leaves this process with it, unless its client does not read. Every other
 * answer keeps the concurrency slot until the kernel has its last byte or the connection is gone, so that a key has
 * no more answers in memory than slots.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Array as Arr, Cause, Effect, type Scope, type Stream } from "effect"
import { AnswerMemory, type AnswerShare } from "../backend/AnswerMemory.ts"
import { BackendFailed } from "../domain/Errors.ts"
import { outcomes } from "../domain/Outcome.ts"
import { freeBuffer } from "../infra/freeBuffer.ts"
import { runChunks } from "../infra/v8/stream.ts"
import { FailureLog, withRequestId } from "../observability/failureLog.ts"
import type { Ending } from "../request/finish.ts"
import type { Answer } from "../request/meterStream.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import type { Dialect, Encoder } from "./dialect/Dialect.ts"
import { Fold } from "./dialect/fold.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "./errors/errorResponses.ts"
import type { Exchange } from "./Exchange.ts"
import { refusal, type Reply, written } from "./Reply.ts"
import { headersOf, jsonType, respondError, respondText } from "./respond.ts"
import { AnswerBody, pieceBytes } from "./server/AnswerBody.ts"

/**
 * Whether an answer of `length` characters leaves this process as soon as it is written: it is one piece, its connection
 * has few unsent bytes, and no earlier answer of the connection is unfinished.
 */
const leavesAtOnce = (length: number, incoming: IncomingMessage, response: ServerResponse): boolean =>
  length <= pieceBytes && response.socket !== null && incoming.socket.writableLength <= pieceBytes

/** The body of an answer as text, or in parts that are written in order. */
type BodyText = string | ReadonlyArray<string | Buffer>

const lengthOf = (body: BodyText): number =>
  typeof body === "string" ? body.length : body.reduce((sum, { length }) => sum + length, 0)

const textOf = (body: BodyText): string =>
  typeof body === "string" ? body : body.map((part) => part.toString()).join("")

const partsOf = (parts: ReadonlyArray<string | Buffer>): ReadonlyArray<Buffer> =>
  parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part))

const doNothing = (): void => undefined

const answered = (slot: Ending["slot"]): Ending => ({ outcome: outcomes.answered, row: "own", slot })

/**
 * Writes a small answer. Node's response gets it as it is: one of Effect would copy the headers twice on the way
 * (`bench/RESULTS.md`). The answer to a `HEAD` has no body, which Effect's response knows.
 */
const respondNow = ({ context, incoming, response }: Exchange, json: string) => {
  if (incoming.method === "HEAD") return respondText(context, json)
  const headers = headersOf(context)
  headers["content-type"] = jsonType
  headers["content-length"] = String(Buffer.byteLength(json))
  response.writeHead(200, headers).end(json)
  return written
}

const failWith = (context: RequestContext) => (error: ErrorResponse) =>
  Effect.succeed(respondError(context, error))

export const makeReplies = Effect.gen(function* () {
  const [memory, { log: logFailure }] = [yield* AnswerMemory, yield* FailureLog]

  /** The share of the memory for answers. When it is cut, the connection is destroyed. */
  const shareOf = ({ context, incoming }: Exchange): Effect.Effect<AnswerShare, never, Scope.Scope> =>
    Effect.map(memory.share(context.caller), (share) => {
      share.onCut(() => void incoming.socket.destroy())
      return share
    })

  /** An object that may take long to read. It is its own function, so that its closures keep no copy of `parts` as text. */
  const largeObject = (
    exchange: Exchange,
    parts: ReadonlyArray<Buffer>,
    release: () => void
  ): Effect.Effect<Reply, never, Scope.Scope> =>
    Effect.map(shareOf(exchange), (share) => {
      const { context, response } = exchange
      const bytes = parts.reduce((sum, { length }) => sum + length, 0)
      share.deliver(bytes)
      const send = Effect.suspend(() => {
        const headers = { ...headersOf(context), "content-type": jsonType, "content-length": String(bytes) }
        const body = new AnswerBody(response, headers, share)
        return Effect.map(Effect.andThen(body.writeBytes(...parts), body.endAndWait()), (isTaken) => {
          if (isTaken) release()
          return written
        })
      })
      return { ending: answered("kept"), send, fail: failWith(context) }
    })

  const largeText = (exchange: Exchange, bytes: Buffer): Effect.Effect<Reply, never, Scope.Scope> =>
    largeObject(exchange, [bytes], () => freeBuffer(bytes))

  /** One object. `release` frees the memory of its parts. It is called when the kernel has them. */
  const object = (
    exchange: Exchange,
    body: BodyText,
    release = doNothing
  ): Effect.Effect<Reply, never, Scope.Scope> => {
    const { context, incoming, response } = exchange
    if (incoming.method !== "HEAD" && !leavesAtOnce(lengthOf(body), incoming, response)) {
      return typeof body === "string"
        ? largeText(exchange, Buffer.from(body))
        : largeObject(exchange, partsOf(body), release)
    }
    return Effect.succeed({
      ending: answered("freed"),
      send: Effect.sync(() => {
        const text = textOf(body)
        release()
        return respondNow(exchange, text)
      }),
      fail: failWith(context)
    })
  }

  /** Joins the frames of the backend to one object. */
  const folded = function* (
    exchange: Exchange,
    frames: Answer,
    encoder: Encoder
  ): Effect.fn.Return<Reply, Stream.Error<Answer>, Scope.Scope> {
    const fold = new Fold(encoder.logprobs)
    yield* runChunks(frames, (chunk) => {
      for (const frame of chunk) fold.add(frame)
      return undefined
    })
    const body = fold.toObject(encoder.object)
    return yield* body === undefined ? new BackendFailed({ fault: "cut" }) : object(exchange, body)
  }

  /** The error line or event of a failed stream. */
  const failStream = (
    context: RequestContext,
    body: AnswerBody,
    encoder: Encoder,
    cause: Cause.Cause<Stream.Error<Answer>>
  ) => {
    const failure = cause.reasons.find((reason) => reason._tag === "Fail")
    const error = failure === undefined ? internalError : toErrorResponse(failure.error)
    const send = Effect.suspend(() => endWith(body, encoder.failure(error, context.arrival.requestId)))
    const reply: Reply = { ...refusal(context, error), send, fail: () => send }
    return Effect.as(
      failure === undefined
        ? withRequestId(context, Effect.logError("defect", cause))
        : logFailure(context, failure.error),
      reply
    )
  }

  /**
   * A stream. The headers go out with the first frame, which is already in. The final frame may arrive together with
   * text: everything except the final frame is sent here, and only the final frame waits for the end of the request.
   * An interruption stays an interruption.
   */
  const stream = (exchange: Exchange, frames: Answer, dialect: Dialect, encoder: Encoder) =>
    Effect.flatMap(shareOf(exchange), (share) => {
      const { context, incoming, response } = exchange
      const body = new AnswerBody(
        response,
        { "content-type": dialect.contentType, "x-accel-buffering": "no", ...headersOf(context) },
        share
      )
      let last: string | undefined
      return runChunks(frames, (chunk) => {
        const final = Arr.lastNonEmpty(chunk)
        if (!final.done) return body.writeNow(encoder.frames(chunk))
        const before = Arr.initNonEmpty(chunk)
        const text = Arr.isArrayNonEmpty(before) ? encoder.frames(before) : ""
        last = encoder.frames([final])
        return body.writeNow(text)
      }).pipe(
        Effect.flatMap((): Effect.Effect<Reply, BackendFailed> => {
          if (last === undefined) return new BackendFailed({ fault: "cut" })
          const text = last
          const slot = leavesAtOnce(text.length, incoming, response) ? "freed" : "kept"
          return Effect.succeed({
            ending: answered(slot),
            send: Effect.suspend(() => (slot === "kept" ? waitUntilRead(body, text) : endWith(body, text))),
            fail: (error) => endWith(body, encoder.failure(error, context.arrival.requestId))
          })
        }),
        Effect.catchCauseIf(
          (cause) => !Cause.hasInterrupts(cause),
          (cause) => failStream(context, body, encoder, cause)
        )
      )
    })

  return { object, folded, stream }
})

/** `text` is one piece. */
const endWith = (body: AnswerBody, text: string) =>
  Effect.sync(() => {
    body.end(text)
    return written
  })

const waitUntilRead = (body: AnswerBody, text: string) =>
  Effect.andThen(
    body.write(text),
    Effect.suspend(() => Effect.as(body.endAndWait(), written))
  )
