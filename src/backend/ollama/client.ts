/**
 * The backend over HTTP/1.1, with its own undici pool. It sends the decoded request and no header of the client: constant
 * paths, `Content-Type` and `Accept`, and the `Host`, `Content-Length` and `Connection` that HTTP needs. When requests are
 * traced, it adds the `traceparent` of the current span.
 *
 * Timeouts: `connectTimeoutMs` for a connection; `firstByteTimeoutMs` until the first frame, including the loading of a
 * model; then `idleTimeoutMs` between reads, which stops while the client does not read; `maxDurationMs` for the whole
 * answer.
 */
import { Effect, Layer, type Scope, type Stream } from "effect"
import { Pool } from "undici"
import type { Embeddings } from "../../domain/Embeddings.ts"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import type { Frame } from "../../domain/Frame.ts"
import type { InferenceRequest, JsonObject, ModelCall } from "../../domain/Inference.ts"
import type { Description, Model } from "../../domain/Model.ts"
import type { ByteList } from "../../infra/ByteList.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { makeMonotonicMs, makeTimer } from "../../infra/time.ts"
import { Drain } from "../../infra/Drain.ts"
import { Traced } from "../../observability/Trace.ts"
import { currentTraceparent } from "../../observability/traceparent.ts"
import {
  frameBoundsOf,
  isTooDense,
  parsedFactor,
  showBytes,
  tagsBytes,
  vectorBytesOf
} from "../answerBounds.ts"
import { AnswerMemory, type AnswerShare, uncounted } from "../AnswerMemory.ts"
import { Backend } from "../Backend.ts"
import { CircuitBreaker } from "../CircuitBreaker.ts"
import { decodeEmbeddings } from "./decodeEmbeddings.ts"
import type { FrameKind } from "./decodeFrame.ts"
import { decodeDescription, decodeShow } from "./decodeShow.ts"
import type { CallError } from "../errors.ts"
import { beforeFirstFrame, fromStatus, fromTransport } from "./errors.ts"
import { type AnswerLimits, FrameReader, type Frames } from "./FrameReader.ts"
import { readAll } from "./readAll.ts"
import { streamWithBreaker, callWithBreaker } from "../withBreaker.ts"
import { decodeTags } from "./decodeTags.ts"
import { CountingClient, type Head, UpstreamCall, TransportError } from "./UpstreamCall.ts"

export interface OllamaOptions {
  /** http or https; a path is a prefix of every path sent */
  readonly url: URL
  readonly connectTimeoutMs: number
  readonly firstByteTimeoutMs: number
  readonly idleTimeoutMs: number
  readonly maxDurationMs?: number
  /**
   * Connections for requests of clients. Further requests wait, within `firstByteTimeoutMs`. Unlimited by default: the
   * concurrency limits of keys apply, and a request that waits here would look like a backend that hangs.
   */
  readonly connections?: number
}

/** Bytes of an error's body that are read. Its beginning is enough to classify it. */
const errorBytes = 64 * 1024
const errorReadMs = 1000
const listTimeoutMs = 10_000
/** Separate connections for lists and pings, so that running streams cannot delay them. */
const lookupConnections = 2
const pingTimeoutMs = 3000
const notInTime = "no answer in time"

const paths = {
  chat: "/api/chat",
  generate: "/api/generate",
  embed: "/api/embed",
  embeddings: "/api/embeddings",
  show: "/api/show",
  describe: "/api/show",
  models: "/api/tags",
  ping: "/api/version"
} as const

/** Calls that the gateway makes for itself. They have their own connections. */
type Lookup = "describe" | "models" | "ping"
const isLookup = (path: keyof typeof paths): path is Lookup =>
  path === "describe" || path === "models" || path === "ping"

const make = Effect.fnUntraced(function* (options: OllamaOptions) {
  const [breaker, drain, memory] = [yield* CircuitBreaker, yield* Drain, yield* AnswerMemory]
  const [timer, nowMs, traced] = [yield* makeTimer, yield* makeMonotonicMs, yield* Traced]
  const answerMs = options.maxDurationMs ?? Number.POSITIVE_INFINITY
  const prefix = options.url.pathname.replace(/(?<!\/)\/+$/, "")
  const makePool = (connections: number | null) =>
    Effect.acquireRelease(
      Effect.sync(
        () =>
          new Pool(options.url.origin, {
            connections,
            connect: { timeout: options.connectTimeoutMs },
            factory: (origin, clientOptions) => new CountingClient(origin, clientOptions),
            allowH2: false,
            // `UpstreamCall.setDeadline` bounds the head. It also covers the wait for a connection.
            headersTimeout: 0,
            bodyTimeout: options.idleTimeoutMs
          })
      ),
      (pool) => Effect.promise(() => pool.destroy())
    )
  const requests = yield* makePool(options.connections ?? null)
  const lookupPool = yield* makePool(lookupConnections)

  /** Sends a request now. It ends after `ms`. The caller closes it. */
  const dispatch = (
    path: keyof typeof paths,
    body: string | null,
    ms: number,
    traceparent: string | undefined
  ): UpstreamCall => {
    const call = new UpstreamCall(timer)
    call.setDeadline(ms, notInTime)
    call.onShutdown(drain.onCut)
    const pool = isLookup(path) ? lookupPool : requests
    const method = body === null ? "GET" : "POST"
    const headers = headersFor(path, body)
    pool.dispatch(
      {
        path: prefix + paths[path],
        method,
        headers: traceparent === undefined ? headers : { ...headers, traceparent },
        body
      },
      call
    )
    return call
  }

  /** The `traceparent` of a call for a client. */
  const traceparentOf: Effect.Effect<string | undefined> = traced ? currentTraceparent : Effect.undefined

  const askOnce = Effect.fnUntraced(function* <A>(
    path: keyof typeof paths,
    body: string | null,
    { decode, factor, limit }: Expected<A>,
    share: AnswerShare,
    ms: number
  ): Effect.fn.Return<A, CallError | TransportError, Scope.Scope> {
    const deadline = nowMs() + ms
    const traceparent = isLookup(path) ? undefined : yield* traceparentOf
    const call = yield* Effect.acquireRelease(
      Effect.sync(() => dispatch(path, body, ms, traceparent)),
      (dispatched) => Effect.sync(() => dispatched.close())
    )
    const head = yield* call.head()
    if (head.status !== 200) return yield* fromStatus(head, yield* beginning(call))
    // The time that an answer waits for memory does not count as the backend's.
    let waitedMs = 0
    const collect = (bytes: number) => {
      const since = nowMs()
      call.setDeadline(Number.POSITIVE_INFINITY, notInTime)
      return Effect.map(share.collect(bytes), () => {
        waitedMs += nowMs() - since
        call.setDeadline(Math.max(0, deadline + waitedMs - nowMs()), notInTime)
      })
    }
    const read = yield* readAll(call, limit, { tryCollect: (bytes) => share.tryCollect(bytes), collect })
    const decoded = read.size * factor
    if (factor > 1 && !share.tryCollect(decoded)) yield* collect(decoded)
    return yield* decode(read)
  }, Effect.scoped)

  /**
   * Gives `attempt` its time, in ms from now, for connecting, waiting and reading. The server may close an idle connection while
   * the gateway sends on it. Only then a second attempt is made, in what is left of the time, because the server has done nothing
   * yet. The first attempt gets the time of the setting itself, whose deadlines share a timer (`Deadlines.ts`).
   */
  const inTime = <A, R>(
    ms: number,
    attempt: (ms: number) => Effect.Effect<A, CallError | TransportError, R>
  ): Effect.Effect<A, CallError, R> => {
    const deadline = nowMs() + ms
    return Effect.catch(attempt(ms), (error) =>
      wasClosedIdle(error)
        ? Effect.mapError(attempt(Math.max(0, deadline - nowMs())), toCallError)
        : Effect.fail(toCallError(error))
    )
  }

  /** Reads an answer of one JSON object. */
  const ask = <A>(
    path: keyof typeof paths,
    body: string | null,
    expected: Expected<A>,
    share: AnswerShare,
    timeoutMs: number
  ) => Effect.suspend(() => inTime(timeoutMs, (ms) => askOnce(path, body, expected, share, ms)))

  /** A call of the gateway itself. No client caused it, so every error counts as a failure of the backend. */
  const lookUp = <A>(path: Lookup, body: string | null, expected: Expected<A>, timeoutMs: number) =>
    Effect.mapError(ask(path, body, expected, uncounted, timeoutMs), (error) =>
      error._tag === "BackendFailed" ? error : new BackendFailed({ fault: "status", cause: error })
    )

  /** Makes a call up to its first frame. After that `maxDurationMs` applies. It is closed with its share. */
  const head = (kind: FrameKind, body: string, limits: AnswerLimits) =>
    inTime(options.firstByteTimeoutMs, (ms) =>
      Effect.flatMapEager(traceparentOf, (traceparent) => {
        const call = dispatch(kind, body, ms, traceparent)
        limits.share.atEnd(() => call.close())
        return Effect.flatMap(call.head(), (head) => open(call, kind, limits, head, answerMs))
      })
    )

  return Backend.of({
    forward: (permit) => {
      const { kind } = permit.facts.request
      if (kind !== "chat" && kind !== "generate") {
        return protocol(`${kind} does not answer in frames`)
      }
      return Effect.flatMap(memory.share(permit.facts.caller), (share) =>
        streamWithBreaker(breaker, permit, ({ call, model }) =>
          head(kind, streamBodyOf(model.name, call), {
            bounds: frameBoundsOf(call),
            share,
            isFolded: !call.request.stream
          })
        )
      )
    },
    embed: (permit) => {
      const { kind } = permit.facts.request
      if (kind !== "embed" && kind !== "embeddings") return protocol(`${kind} does not answer in vectors`)
      return Effect.flatMap(memory.share(permit.facts.caller), (share) =>
        callWithBreaker(breaker, permit, ({ call: { request }, model }) => {
          const vectors = {
            limit: vectorBytesOf(request),
            factor: 1,
            decode: (bytes: ByteList) =>
              Effect.map(
                expect(decodeEmbeddings(kind, request.body, bytes), "not the vectors asked for"),
                (embeddings) => ({ ...embeddings, release: () => freeVectors(embeddings, bytes) })
              )
          }
          return ask(kind, objectBodyOf(model.name, request), vectors, share, options.firstByteTimeoutMs)
        })
      )
    },
    show: (permit) =>
      Effect.flatMap(memory.share(permit.facts.caller), (share) =>
        callWithBreaker(breaker, permit, ({ model }) =>
          // Only the name: other fields can make the backend return what must stay hidden.
          ask("show", JSON.stringify({ model: model.name }), description, share, listTimeoutMs)
        )
      ),
    models: lookUp("models", null, list, listTimeoutMs),
    describe: (name) => lookUp("describe", JSON.stringify({ model: name }), ownDescription, listTimeoutMs),
    ping: lookUp("ping", null, anything, pingTimeoutMs)
  })
})

/** An answer of one object. */
interface Expected<A> {
  /** maximal bytes */
  readonly limit: number
  /** memory of the decoded answer as a multiple of its bytes */
  readonly factor: number
  readonly decode: (bytes: ByteList) => Effect.Effect<A, BackendFailed>
}

const description: Expected<JsonObject> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: ({ text }) => expect(isTooDense(text) ? undefined : decodeShow(text), "not a model's description")
}
const ownDescription: Expected<Description> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: ({ text }) =>
    expect(isTooDense(text) ? undefined : decodeDescription(text), "not a model's description")
}
const list: Expected<ReadonlyArray<Model>> = {
  limit: tagsBytes,
  factor: parsedFactor,
  decode: ({ text }) => expect(isTooDense(text) ? undefined : decodeTags(text), "not a list of models")
}
const anything: Expected<void> = { limit: errorBytes, factor: 1, decode: () => Effect.void }

const jsonBody = { "content-type": "application/json" } as const
const accepting = { accept: "application/json" } as const
const acceptingFrames = { accept: "application/x-ndjson, application/json" } as const
const withoutBody = { lookup: accepting, request: acceptingFrames } as const
const withBody = {
  lookup: { ...accepting, ...jsonBody },
  request: { ...acceptingFrames, ...jsonBody }
} as const

const headersFor = (path: keyof typeof paths, body: string | null) =>
  (body === null ? withoutBody : withBody)[isLookup(path) ? "lookup" : "request"]

/** The body of a call with frames. It is always streamed and bounded, whatever the client asked for. */
const streamBodyOf = (model: string, { request, maxTokens }: ModelCall): string =>
  JSON.stringify({
    ...request.body,
    model,
    stream: true,
    options: { ...request.options, num_predict: maxTokens }
  })

/** The body of a call with one object as its answer. Nothing is generated, so it needs no bound. */
const objectBodyOf = (model: string, { body, options }: InferenceRequest): string =>
  JSON.stringify({ ...body, model, ...(Object.keys(options).length === 0 ? {} : { options }) })

const expect = <A>(value: A | undefined, otherwise: string): Effect.Effect<A, BackendFailed> =>
  value === undefined ? protocol(otherwise) : Effect.succeed(value)

/** Waits for the first frames, which usually come with the head. The rest is read by the stream, in `answerMs`. */
const open = (
  call: UpstreamCall,
  kind: FrameKind,
  limits: AnswerLimits,
  head: Head,
  answerMs: number
): Effect.Effect<
  Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>,
  CallError | TransportError
> => {
  if (head.status !== 200)
    return Effect.flatMap(beginning(call), (text) => Effect.fail(fromStatus(head, text)))
  if (!isFrames(head)) {
    const fault = protocol(`content type ${head.contentType.slice(0, 100)}`)
    call.abort(fault)
    return fault
  }
  const reader = new FrameReader(call, kind, head, limits)
  const opened = (first: Frames) => {
    call.setDeadline(answerMs, "longer than the maximal duration")
    return Effect.succeed(reader.rest(first))
  }
  const there = reader.poll()
  if (typeof there !== "string") return opened(there)
  return Effect.flatMap(Effect.mapError(reader.next(), beforeFirstFrame), (first) =>
    first === undefined
      ? new BackendFailed({ fault: "cut", cause: new Error("ended before its first frame") })
      : opened(first)
  )
}

const isFrames = (head: Head): boolean =>
  !head.encoded && /^application\/(x-ndjson|json)\s*(;|$)/.test(head.contentType)

const protocol = (what: string): BackendFailed =>
  new BackendFailed({ fault: "protocol", cause: new Error(what) })

/** Reads the beginning of an error's body, for at most a second. */
const beginning = (call: UpstreamCall): Effect.Effect<string> => {
  const read: Array<Buffer> = []
  let size = 0
  const more: Effect.Effect<void, TransportError> = Effect.flatMap(call.take(), (bytes) => {
    for (const chunk of bytes) {
      read.push(chunk)
      size += chunk.length
    }
    return bytes.length > 0 && size < errorBytes ? more : Effect.void
  })
  return more.pipe(
    // A part of the text is enough, so an error while reading it does not matter.
    Effect.ignore,
    Effect.timeoutOption(errorReadMs),
    Effect.map(() => {
      call.finish()
      return Buffer.concat(read).subarray(0, errorBytes).toString("utf8")
    })
  )
}

/** A vector whose bytes came in several parts has its own memory. */
const freeVectors = ({ vectors }: Embeddings, bytes: ByteList): void => {
  for (const { json } of vectors) freeBuffer(json)
  bytes.release()
}

const wasClosedIdle = (error: CallError | TransportError): boolean =>
  error instanceof TransportError && error.kind === "lost" && error.reused && !error.answered

const toCallError = (error: CallError | TransportError): CallError =>
  error instanceof TransportError ? fromTransport(error) : error

export const layerOllama = (
  options: OllamaOptions
): Layer.Layer<Backend, never, AnswerMemory | CircuitBreaker | Drain> => Layer.effect(Backend, make(options))
