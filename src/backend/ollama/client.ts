/**
 * The backend over HTTP/1.1, with its own undici pool. It sends the decoded request and no header of the client: constant
 * paths, `Content-Type` and `Accept`, and the `Host`, `Content-Length` and `Connection` that HTTP needs. When requests are
 * traced, it adds the `traceparent` of the current span.
 *
 * Timeouts: `connectTimeoutMs` for a connection; `firstByteTimeoutMs` until the first frame, including the loading of a model, or
 * `notAnsweringMs` when the server did not answer the last ping; then `idleTimeoutMs` between reads, which stops while nothing is
 * read; `maxDurationMs` for the rest of the answer.
 */
import { Effect, Layer, Pull, Scope, Stream } from "effect"
import { Pool } from "undici"
import type { Facts } from "../../domain/Evidence.ts"
import type { Embeddings } from "../../domain/Frame.ts"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import type { JsonObject, ModelCall, PreparedRequest } from "../../domain/Inference.ts"
import type { Description, Model } from "../../domain/Model.ts"
import { Drain, type RequestOfKey } from "../../infra/Drain.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { GrowingBuffer } from "../../infra/GrowingBuffer.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { currentTraceparent, Traced } from "../../observability/Trace.ts"
import {
  frameBoundsOf,
  isTooDense,
  parsedFactor,
  showBytes,
  tagsBytes,
  vectorBytesOf,
  vectorsFactor
} from "../answerBounds.ts"
import { type AnswerShare, uncounted } from "../../memory/MemoryLedger.ts"
import { Backend } from "../Backend.ts"
import { CircuitBreaker } from "../CircuitBreaker.ts"
import { hasLevel, objectBodyOf, streamBodyOf, withoutLevel } from "./bodies.ts"
import { decodeEmbeddings } from "./decodeEmbeddings.ts"
import type { FrameKind } from "./decodeFrame.ts"
import { decodeDescription, decodeShow, decodeTags } from "./decodeModels.ts"
import { type CallError, SilentBefore } from "../errors.ts"
import {
  beforeFirstFrame,
  fromStatus,
  fromTransport,
  refusesLevel,
  TransportError,
  wasClosedIdle,
  wasLate
} from "./errors.ts"
import { type AnswerLimits, pullFrames } from "./frames.ts"
import { streamWithBreaker, callWithBreaker } from "../withBreaker.ts"
import { watchPings } from "./watchPings.ts"
import { Silence } from "./Silence.ts"
import { CountingClient, type Head, UpstreamCall } from "./UpstreamCall.ts"

export interface OllamaOptions {
  /** http or https; a path is a prefix of every path sent */
  readonly url: URL
  readonly connectTimeoutMs: number
  readonly firstByteTimeoutMs: number
  /** how long a request waits for its first frame while the server does not even answer a ping; default: 5000 */
  readonly notAnsweringMs?: number
  readonly idleTimeoutMs: number
  /** default: half an hour */
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
/** Less than readiness waits (`src/http/health.ts`), so that both say the same. */
const pingTimeoutMs = 900

const paths = {
  chat: "/api/chat",
  generate: "/api/generate",
  embed: "/api/embed",
  embeddings: "/api/embeddings",
  show: "/api/show",
  describe: "/api/show",
  models: "/api/tags",
  loaded: "/api/ps",
  ping: "/api/version"
} as const
type Path = keyof typeof paths

/** Calls that the gateway makes for itself. They have their own connections. */
const lookups: ReadonlySet<Path> = new Set(["describe", "models", "loaded", "ping"])
/** How long a call may still wait. */
type LeftMs = () => number

const make = Effect.fnUntraced(function* (options: OllamaOptions) {
  const breaker = yield* CircuitBreaker
  const drain = yield* Drain
  const nowMs = yield* makeMonotonicMs
  const traced = yield* Traced
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
            // The deadline of a call bounds the head. It also covers the wait for a connection.
            headersTimeout: 0,
            bodyTimeout: options.idleTimeoutMs
          })
      ),
      (pool) => Effect.promise(() => pool.destroy())
    )
  const silence = new Silence({ nowMs, timeoutMs: options.firstByteTimeoutMs })
  /** digests of models that have refused a level of `think` */
  const levelless = new Set<string>()
  const requests = yield* makePool(options.connections ?? null)
  const ownRequests = yield* makePool(lookupConnections)

  const timer = (ms: number): LeftMs => {
    const end = nowMs() + ms
    return () => end - nowMs()
  }

  /** Sends a request, which ends with the Scope or when no time is left, and waits for the head of its answer. */
  const send = Effect.fnUntraced(function* (
    path: Path,
    body: string | Buffer | null,
    leftMs: LeftMs,
    of?: RequestOfKey
  ) {
    const isLookup = lookups.has(path)
    const traceparent = traced && !isLookup ? yield* currentTraceparent : undefined
    const call = yield* UpstreamCall.send(
      isLookup ? ownRequests : requests,
      {
        path: prefix + paths[path],
        method: body === null ? "GET" : "POST",
        headers: {
          accept: isLookup ? "application/json" : "application/x-ndjson, application/json",
          ...(body === null ? {} : { "content-type": "application/json" }),
          ...(traceparent === undefined ? {} : { traceparent })
        },
        body
      },
      (stop) => drain.onCut(stop, of)
    )
    call.setDeadline(leftMs, "no answer in time")
    const head = yield* call.head
    return head.status === 200 ? { call, head } : yield* fromStatus(head, yield* beginningOf(call))
  })

  /**
   * Makes a call. The server may close an idle connection while the gateway sends on it. Only then the call is made again, in
   * what is left of its time, because the server has done nothing yet.
   */
  const attempt = <A, R>(call: Effect.Effect<A, CallError | TransportError, R>) =>
    Effect.catch(call, (error) =>
      wasClosedIdle(error) ? Effect.mapError(call, callErrorOf) : Effect.fail(callErrorOf(error))
    )

  const readObject = Effect.fnUntraced(function* <A>(
    path: Path,
    body: string | Buffer | null,
    expected: Expected<A>,
    share: AnswerShare,
    leftMs: LeftMs,
    of?: RequestOfKey
  ) {
    const { call } = yield* send(path, body, leftMs, of)
    const read = yield* readAll(call, expected.limit, share)
    yield* share.collect(read.size * expected.factor)
    const bytes = read.exact()
    yield* Effect.addFinalizer(() => Effect.sync(() => freeBuffer(bytes)))
    return yield* expected.decode(bytes)
  })

  /** Reads an answer of one JSON object. Its bytes are freed with the Scope. */
  const ask = <A>(
    path: Path,
    body: string | Buffer | null,
    expected: Expected<A>,
    share: AnswerShare,
    ms: number,
    of?: RequestOfKey
  ) => Effect.suspend(() => attempt(readObject(path, body, expected, share, timer(ms), of)))

  /** A call of the gateway itself. No client caused it, so every error counts as a failure of the backend. */
  const lookUp = <A>(path: Path, body: string | null, expected: Expected<A>, ms: number) =>
    Effect.mapError(Effect.scoped(ask(path, body, expected, uncounted, ms)), (error) =>
      error._tag === "BackendFailed" ? error : new BackendFailed({ fault: "status", cause: error })
    )

  const { endingSoon, ping } = watchPings(
    lookUp("ping", null, anything, pingTimeoutMs),
    options.notAnsweringMs ?? 5000
  )

  /** Makes a call with frames, up to the first of them. It ends with the Scope. */
  const open = Effect.fnUntraced(function* (
    kind: FrameKind,
    body: Buffer,
    limits: AnswerLimits,
    leftMs: LeftMs,
    of: RequestOfKey
  ) {
    const { call, head } = yield* send(kind, body, leftMs, of)
    if (!hasFrames(head)) return yield* protocol(`content type ${head.contentType.slice(0, 100)}`)
    const pull = pullFrames(call, kind, head, limits)
    const first = yield* Pull.catchDone(Effect.mapError(pull, beforeFirstFrame), () => endedEarly)
    call.setDeadline(timer(options.maxDurationMs ?? 1_800_000), "longer than the maximal duration")
    let ahead: typeof first | undefined = first
    const next: typeof pull = Effect.suspend(() => {
      const frames = ahead
      ahead = undefined
      return frames === undefined ? pull : Effect.succeed(frames)
    })
    return Stream.fromPull(Effect.succeed(next))
  })

  /** Begins an answer in frames to a call as it is `asked`. */
  const begin = Effect.fnUntraced(function* (
    kind: FrameKind,
    facts: Facts<"Audit">,
    share: AnswerShare,
    asked: ModelCall
  ) {
    const { call, model, request } = facts
    // First: a request whose own time is over has waited the whole time.
    const own = timer(options.firstByteTimeoutMs)
    const { end, frame, leftMs } = silence.begin(model.name, asked.plan.collects)
    yield* Scope.addFinalizer(yield* Effect.scope, Effect.sync(end))
    const limits = { bounds: frameBoundsOf(call), share, isFolded: !request.stream, heard: frame }
    const body = streamBodyOf(model.name, asked)
    const opening = attempt(open(kind, body, limits, () => Math.min(own(), leftMs()), facts))
    return yield* Effect.mapError(endingSoon(opening), (error) =>
      own() > 0 && wasLate(error)
        ? new BackendFailed({ fault: "timeout", cause: new SilentBefore("the model is silent") })
        : error
    )
  })

  return Backend.of({
    forward: (permit, share) => {
      const { kind } = permit.facts.request
      if (kind !== "chat" && kind !== "generate") return protocol(`${kind} does not answer in frames`)
      return streamWithBreaker(breaker, permit, (admitted) => {
        const { call, model } = admitted
        if (!hasLevel(call)) return begin(kind, admitted, share, call)
        if (levelless.has(model.digest)) return begin(kind, admitted, share, withoutLevel(call))
        // A model that takes no level may reason all the same.
        return Effect.catchIf(begin(kind, admitted, share, call), refusesLevel, () => {
          if (levelless.size >= mostLevelless) levelless.clear()
          levelless.add(model.digest)
          return begin(kind, admitted, share, withoutLevel(call))
        })
      })
    },
    embed: (permit, share) => {
      const { request } = permit.facts
      const { kind } = request
      if (kind !== "embed" && kind !== "embeddings") return protocol(`${kind} does not answer in vectors`)
      return callWithBreaker(breaker, permit, (admitted) => {
        const body = objectBodyOf(admitted.model.name, request)
        const asked = ask(kind, body, vectorsFor(request), share, options.firstByteTimeoutMs, admitted)
        // Base64 is a copy of the numbers.
        return endingSoon(request.base64 === true ? Effect.scoped(asked) : asked)
      })
    },
    // Only the name: other fields can make the backend return what must stay hidden.
    show: (permit, share) =>
      callWithBreaker(breaker, permit, ({ model }) =>
        Effect.scoped(ask("show", JSON.stringify({ model: model.name }), description, share, listTimeoutMs))
      ),
    models: lookUp("models", null, list, listTimeoutMs),
    loaded: lookUp("loaded", null, list, listTimeoutMs),
    describe: (name) => lookUp("describe", JSON.stringify({ model: name }), ownDescription, listTimeoutMs),
    ping
  })
})

/** An answer of one object. */
interface Expected<A> {
  /** maximal bytes */
  readonly limit: number
  /** memory of the text and the decoded answer, as a multiple of the text's bytes */
  readonly factor: number
  readonly decode: (bytes: Buffer) => Effect.Effect<A, BackendFailed>
}

/** Decodes the text of an answer, unless it would take too much memory. */
const fromText =
  <A>(decode: (text: string) => A | undefined, otherwise: string) =>
  (bytes: Buffer): Effect.Effect<A, BackendFailed> => {
    const text = bytes.toString("utf8")
    return expect(isTooDense(text) ? undefined : decode(text), otherwise)
  }

const description: Expected<JsonObject> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: fromText(decodeShow, "not a model's description")
}
const ownDescription: Expected<Description> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: fromText(decodeDescription, "not a model's description")
}
const list: Expected<ReadonlyArray<Model>> = {
  limit: tagsBytes,
  factor: parsedFactor,
  decode: fromText(decodeTags, "not a list of models")
}
const anything: Expected<void> = { limit: errorBytes, factor: 1, decode: () => Effect.void }

const vectorsFor = (request: PreparedRequest): Expected<Embeddings> => ({
  limit: vectorBytesOf(request),
  factor: vectorsFactor(request),
  decode: (bytes) => expect(decodeEmbeddings(request, bytes), "not the vectors asked for")
})

const mostLevelless = 1000

const callErrorOf = (error: CallError | TransportError): CallError =>
  error instanceof TransportError ? fromTransport(error) : error

const expect = <A>(value: A | undefined, otherwise: string): Effect.Effect<A, BackendFailed> =>
  value === undefined ? protocol(otherwise) : Effect.succeed(value)

const endedEarly = Effect.suspend(
  () => new BackendFailed({ fault: "cut", cause: new Error("ended before its first frame") })
)

const hasFrames = (head: Head): boolean =>
  !head.encoded && /^application\/(x-ndjson|json)\s*(;|$)/.test(head.contentType)

const protocol = (what: string): BackendFailed =>
  new BackendFailed({ fault: "protocol", cause: new Error(what) })

/** Reads a whole body. While there is no memory for more, nothing is read. */
const readAll = (
  call: UpstreamCall,
  limit: number,
  share: AnswerShare
): Effect.Effect<GrowingBuffer, BackendFailed | ShuttingDown | Unavailable> =>
  Effect.suspend(() => {
    const read = new GrowingBuffer()
    const more = Effect.flatMap(call.bytes, (chunks): Effect.Effect<void, BackendFailed | Unavailable> => {
      const bytes = chunks.reduce((sum, { length }) => sum + length, 0)
      if (read.size + bytes > limit) return Effect.fail(protocol(`answer of more than ${limit} bytes`))
      return Effect.map(share.collect(read.memoryWith(bytes)), () => {
        for (const chunk of chunks) read.push(chunk)
      })
    })
    return Pull.catchDone(Effect.forever(more), () => Effect.succeed(read))
  })

/** Reads the beginning of an error's body, for at most a second. */
const beginningOf = (call: UpstreamCall): Effect.Effect<string> =>
  Effect.suspend(() => {
    const read = new GrowingBuffer()
    const more = Effect.map(call.bytes, (chunks) => {
      for (const chunk of chunks) read.push(chunk)
    })
    return more.pipe(
      Effect.repeat({ while: () => read.size < errorBytes }),
      // A part of the text is enough, so an error while reading it does not matter.
      Effect.ignore,
      Effect.timeoutOption(errorReadMs),
      Effect.map(() => {
        call.discard()
        return read.exact().toString("utf8", 0, errorBytes)
      })
    )
  })

export const layerOllama = (options: OllamaOptions): Layer.Layer<Backend, never, CircuitBreaker | Drain> =>
  Layer.effect(Backend, make(options))
