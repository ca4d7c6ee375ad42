/**
 * The backend over HTTP/1.1, on its own undici pool. It sends the decoded request and nothing that the client wrote:
 * constant paths, `Content-Type` and `Accept`, and the `Host`, `Content-Length` and `Connection` that HTTP needs.
 *
 * Timeouts: `connectTimeoutMs` for a connection; `firstByteTimeoutMs` up to the first frame, including the loading of
 * a model; `idleTimeoutMs` between reads after that, which does not run while the client does not read;
 * `maxDurationMs` for all of it.
 */
import { Effect, Layer, Scope, type Stream } from "effect"
import { Pool } from "undici"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import type { Frame } from "../../domain/Frame.ts"
import type { InferenceRequest, JsonObject, ModelCall } from "../../domain/Inference.ts"
import type { Description, Model } from "../../domain/Model.ts"
import { ByteList } from "../../infra/ByteList.ts"
import { makeMonotonicMs, makeTimer } from "../../infra/time.ts"
import { Drain } from "../../infra/Drain.ts"
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
import { FrameReader, type Taken } from "./FrameReader.ts"
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
   * Connections for clients' requests; further ones wait, within `firstByteTimeoutMs`. Default: as many as there are
   * requests, because their number is for slots to limit, and one that waits here looks like a backend that hangs.
   */
  readonly connections?: number
}

/** Beginning of an error's body that is read: enough to tell what it is about. */
const errorBytes = 64 * 1024
const errorReadMs = 1000
const listTimeoutMs = 10_000
/** Connections for lists and pings: whether the backend answers must not depend on how many streams run. */
const lookupConnections = 2
const pingTimeoutMs = 3000
const notInTime = "nothing in time"

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

/** What the gateway asks for itself; these have connections of their own. */
const lookups = ["describe", "models", "ping"] as const
type Lookup = (typeof lookups)[number]
const isLookup = (path: keyof typeof paths): boolean => lookups.some((lookup) => lookup === path)

const make = Effect.fnUntraced(function* (options: OllamaOptions) {
  const [breaker, drain, memory] = [yield* CircuitBreaker, yield* Drain, yield* AnswerMemory]
  const [timer, nowMs] = [yield* makeTimer, yield* makeMonotonicMs]
  const prefix = options.url.pathname.replace(/\/+$/, "")
  const makePool = (connections: number | null) =>
    Effect.acquireRelease(
      Effect.sync(
        () =>
          new Pool(options.url.origin, {
            connections,
            connect: { timeout: options.connectTimeoutMs },
            factory: (origin, clientOptions) => new CountingClient(origin, clientOptions),
            allowH2: false,
            // The head has its own clock, which also runs while a request waits for a connection.
            headersTimeout: 0,
            bodyTimeout: options.idleTimeoutMs
          })
      ),
      (pool) => Effect.promise(() => pool.destroy())
    )
  const requests = yield* makePool(options.connections ?? null)
  const lookupPool = yield* makePool(lookupConnections)

  /** A request that ends at `deadline` (of `nowMs`), and with its Scope at the latest. */
  const context = (
    path: keyof typeof paths,
    body: string | null,
    deadline: number
  ): Effect.Effect<UpstreamCall, never, Scope.Scope> =>
    Effect.flatMap(Effect.scope, (scope) => {
      const wire = new UpstreamCall(timer)
      // Closed whatever comes next, so that no interruption finds a request that nobody ends.
      return Effect.map(
        Scope.addFinalizer(
          scope,
          Effect.sync(() => wire.close())
        ),
        () => {
          wire.limit(Math.max(0, deadline - nowMs()), notInTime)
          wire.onShutdown(drain.onCut)
          const pool = isLookup(path) ? lookupPool : requests
          pool.dispatch(
            {
              path: prefix + paths[path],
              method: body === null ? "GET" : "POST",
              headers: headersFor(path, body),
              body
            },
            wire
          )
          return wire
        }
      )
    })

  const askOnce = <A>(
    path: keyof typeof paths,
    body: string | null,
    { decode, factor, limit }: Expected<A>,
    share: AnswerShare,
    deadline: number
  ): Effect.Effect<A, CallError | TransportError> =>
    Effect.gen(function* () {
      const wire = yield* context(path, body, deadline)
      const head = yield* wire.head
      if (head.status !== 200) return yield* fromStatus(head, yield* beginning(wire))
      /** The time in which an answer waits for memory is not the backend's. */
      let waitedMs = 0
      const collect = (bytes: number) => {
        if (share.tryCollect(bytes)) return Effect.void
        const since = nowMs()
        wire.limit(Number.POSITIVE_INFINITY, notInTime)
        return Effect.map(share.collect(bytes), () => {
          waitedMs += nowMs() - since
          wire.limit(Math.max(0, deadline + waitedMs - nowMs()), notInTime)
        })
      }
      const read = yield* whole(wire, limit, collect)
      if (factor > 1) yield* collect(read.size * factor)
      return yield* decode(read)
    }).pipe(Effect.scoped)

  /**
   * One deadline for connecting, waiting and reading. The server may close an idle connection while the gateway sends on
   * it. Then nothing was answered and nothing was done, so this is the only case of a second attempt.
   */
  const inTime = <A, R>(
    ms: number,
    attempt: (deadline: number) => Effect.Effect<A, CallError | TransportError, R>
  ): Effect.Effect<A, CallError, R> =>
    Effect.suspend(() => {
      const deadline = nowMs() + ms
      return Effect.catch(attempt(deadline), (error) =>
        diedIdle(error) ? Effect.mapError(attempt(deadline), refusedBy) : Effect.fail(refusedBy(error))
      )
    })

  /** The whole of an answer that is one JSON object. */
  const ask = <A>(
    path: keyof typeof paths,
    body: string | null,
    expected: Expected<A>,
    share: AnswerShare,
    timeoutMs: number
  ) => inTime(timeoutMs, (deadline) => askOnce(path, body, expected, share, deadline))

  /**
   * For the gateway itself: there is no client whose request could be at fault. There are few at a time, and readiness must
   * not wait for what clients ask.
   */
  const lookUp = <A>(path: Lookup, body: string | null, expected: Expected<A>, timeoutMs: number) =>
    Effect.mapError(ask(path, body, expected, uncounted, timeoutMs), (error) =>
      error._tag === "BackendFailed" ? error : new BackendFailed({ fault: "status", cause: error })
    )

  /** Up to the first frame; after that the answer has a clock of its own. */
  const head = (kind: FrameKind, body: string, taken: Taken) =>
    inTime(options.firstByteTimeoutMs, (deadline) =>
      Effect.flatMap(context(kind, body, deadline), (wire) =>
        Effect.map(open(wire, kind, taken), (answer) => {
          wire.limit(options.maxDurationMs ?? Number.POSITIVE_INFINITY, "longer than any answer may be")
          return answer
        })
      )
    )

  return Backend.of({
    forward: (permit) => {
      const { kind } = permit.known.request
      if (kind !== "chat" && kind !== "generate") {
        return protocol(`${kind} does not answer in frames`)
      }
      return Effect.flatMap(memory.share(permit.known.caller), (share) =>
        streamWithBreaker(breaker, permit, ({ call, model }) =>
          head(kind, bodyOf(model.name, call), {
            bounds: frameBoundsOf(call),
            share,
            isFolded: !call.request.stream
          })
        )
      )
    },
    embed: (permit) => {
      const { kind } = permit.known.request
      if (kind !== "embed" && kind !== "embeddings") return protocol(`${kind} does not answer in vectors`)
      return Effect.flatMap(memory.share(permit.known.caller), (share) =>
        callWithBreaker(breaker, permit, ({ call: { request }, model }) => {
          const vectors = {
            limit: vectorBytesOf(request),
            factor: 1,
            decode: (bytes: ByteList) =>
              known(decodeEmbeddings(kind, request.body, bytes), "not the vectors asked for")
          }
          return ask(kind, wholeBodyOf(model.name, request), vectors, share, options.firstByteTimeoutMs)
        })
      )
    },
    show: (permit) =>
      Effect.flatMap(memory.share(permit.known.caller), (share) =>
        callWithBreaker(breaker, permit, ({ model }) =>
          // The name and nothing else: the other fields can echo what has to stay hidden.
          ask("show", JSON.stringify({ model: model.name }), description, share, listTimeoutMs)
        )
      ),
    models: lookUp("models", null, list, listTimeoutMs),
    describe: (name) => lookUp("describe", JSON.stringify({ model: name }), ownDescription, listTimeoutMs),
    ping: lookUp("ping", null, anything, pingTimeoutMs)
  })
})

/** An answer in one object, and the most bytes it may have. */
interface Expected<A> {
  readonly limit: number
  /** how many times its bytes the decoded answer may take */
  readonly factor: number
  readonly decode: (bytes: ByteList) => Effect.Effect<A, BackendFailed>
}

const description: Expected<JsonObject> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: ({ text }) => known(isTooDense(text) ? undefined : decodeShow(text), "not a model's description")
}
const ownDescription: Expected<Description> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: ({ text }) =>
    known(isTooDense(text) ? undefined : decodeDescription(text), "not a model's description")
}
const list: Expected<ReadonlyArray<Model>> = {
  limit: tagsBytes,
  factor: parsedFactor,
  decode: ({ text }) => known(isTooDense(text) ? undefined : decodeTags(text), "not a list of models")
}
const anything: Expected<void> = { limit: errorBytes, factor: 1, decode: () => Effect.void }

const headersFor = (path: keyof typeof paths, body: string | null) => ({
  accept: isLookup(path) ? "application/json" : "application/x-ndjson, application/json",
  ...(body === null ? {} : { "content-type": "application/json" })
})

/** Upstream is always streamed and always bounded, whatever the client asked for. */
const bodyOf = (model: string, { request, maxTokens }: ModelCall): string =>
  JSON.stringify({
    ...request.body,
    model,
    stream: true,
    options: { ...request.options, num_predict: maxTokens }
  })

/** An answer in one object: nothing to stream, and nothing is generated that would need a bound. */
const wholeBodyOf = (model: string, { body, options }: InferenceRequest): string =>
  JSON.stringify({ ...body, model, ...(Object.keys(options).length === 0 ? {} : { options }) })

const known = <A>(value: A | undefined, otherwise: string): Effect.Effect<A, BackendFailed> =>
  value === undefined ? protocol(otherwise) : Effect.succeed(value)

/** Waits for the first frames and leaves the rest to be pulled. */
const open = Effect.fnUntraced(function* (
  wire: UpstreamCall,
  kind: FrameKind,
  taken: Taken
): Effect.fn.Return<
  Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>,
  CallError | TransportError
> {
  const head = yield* wire.head
  if (head.status !== 200) return yield* fromStatus(head, yield* beginning(wire))
  if (!isFrames(head)) {
    const fault = protocol(`content type ${head.contentType.slice(0, 100)}`)
    wire.abort(fault)
    return yield* fault
  }
  const reader = new FrameReader(wire, kind, head, taken)
  const first = yield* Effect.mapError(reader.next, beforeFirstFrame)
  if (first === undefined)
    return yield* new BackendFailed({ fault: "cut", cause: new Error("ended before its first frame") })
  return reader.rest(first)
})

const isFrames = (head: Head): boolean =>
  !head.encoded && /^application\/(x-ndjson|json)\s*(;|$)/.test(head.contentType)

const protocol = (what: string): BackendFailed =>
  new BackendFailed({ fault: "protocol", cause: new Error(what) })

/** The beginning of an error's body; what does not come within a second is not waited for. */
const beginning = (wire: UpstreamCall): Effect.Effect<string> => {
  const read: Array<Buffer> = []
  let size = 0
  const more: Effect.Effect<void, TransportError> = Effect.flatMap(wire.take, (bytes) => {
    for (const chunk of bytes) {
      read.push(chunk)
      size += chunk.length
    }
    return bytes.length > 0 && size < errorBytes ? more : Effect.void
  })
  return more.pipe(
    // Half an error text is as good as a whole one; that it broke off is not the news.
    Effect.ignore,
    Effect.timeoutOption(errorReadMs),
    Effect.map(() => {
      wire.finish()
      return Buffer.concat(read).subarray(0, errorBytes).toString("utf8")
    })
  )
}

/** The whole body; more than `limit` bytes is a protocol fault. While there is no memory for more, the rest is not read. */
const whole = Effect.fnUntraced(function* (
  wire: UpstreamCall,
  limit: number,
  collect: (bytes: number) => Effect.Effect<void, Unavailable>
) {
  const read = new ByteList()
  while (true) {
    const bytes = yield* wire.take
    if (bytes.length === 0) return read
    const more = bytes.reduce((sum, { length }) => sum + length, 0)
    if (read.size + more > limit) {
      const fault = protocol(`the answer is larger than the ${limit} bytes it may have`)
      wire.abort(fault)
      return yield* fault
    }
    yield* collect(read.capacityWith(more))
    for (const chunk of bytes) read.push(chunk)
  }
})

const diedIdle = (error: CallError | TransportError): boolean =>
  error instanceof TransportError && error.kind === "lost" && error.reused && !error.answered

/** A wire's own error becomes the gateway's. */
const refusedBy = (error: CallError | TransportError): CallError =>
  error instanceof TransportError ? fromTransport(error) : error

export const layerOllama = (
  options: OllamaOptions
): Layer.Layer<Backend, never, AnswerMemory | CircuitBreaker | Drain> => Layer.effect(Backend, make(options))
