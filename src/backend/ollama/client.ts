/**
 * The backend over HTTP/1.1, with its own undici pool. It sends the decoded request and no header of the client: constant
 * paths, `Content-Type` and `Accept`, and the `Host`, `Content-Length` and `Connection` that HTTP needs. When requests are
 * traced, it adds the `traceparent` of the current span.
 *
 * Timeouts: `connectTimeoutMs` for a connection; `firstByteTimeoutMs` until the first frame, including the loading of a model, or
 * `notAnsweringMs` when the server did not answer the last ping; then `idleTimeoutMs` between reads, which stops while nothing is
 * read; `maxDurationMs` for the rest of the answer.
 */
import { Cause, Effect, Layer, Pull } from "effect"
import { Pool } from "undici"
import type { Facts } from "../../domain/Evidence.ts"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import { Drain, type RequestOfKey } from "../../infra/Drain.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { GrowingBuffer } from "../../infra/GrowingBuffer.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { currentTraceparent, Traced } from "../../observability/Trace.ts"
import { frameBoundsOf } from "../answerBounds.ts"
import { type AnswerShare, uncounted } from "../../memory/MemoryLedger.ts"
import { Backend, type Pinged } from "../Backend.ts"
import { CircuitBreaker } from "../CircuitBreaker.ts"
import { objectBodyOf, streamBodyOf } from "./bodies.ts"
import { oldestVersion } from "./decodePinged.ts"
import type { FrameKind } from "./decodeFrame.ts"
import { GuardsInForce } from "./guards/guards.ts"
import { type CallError, SilentBefore } from "../errors.ts"
import {
  errorBytes,
  fromStatus,
  fromTransport,
  protocol,
  TransportError,
  wasClosedIdle,
  wasLate
} from "./errors.ts"
import { description, type Expected, list, ownDescription, pinged, vectorsFor } from "./Expected.ts"
import { pullFrames } from "./frames.ts"
import { type Begun, callWithBreaker, type Running, streamWithBreaker } from "../withBreaker.ts"
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
  const requests = yield* makePool(options.connections ?? null)
  const ownRequests = yield* makePool(lookupConnections)

  const timer = (ms: number): LeftMs => {
    const end = nowMs() + ms
    return () => end - nowMs()
  }

  /** Sends a request, which its sender has to close, and which ends when no time is left. */
  const send = (
    path: Path,
    body: string | Buffer | null,
    leftMs: LeftMs,
    traceparent?: string,
    of?: RequestOfKey
  ): UpstreamCall => {
    const isLookup = lookups.has(path)
    const call = UpstreamCall.send(
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
      drain.onCut,
      of
    )
    call.setDeadline(leftMs, "no answer in time")
    return call
  }

  /** for a call of a request that is traced */
  const traceparent = traced ? currentTraceparent : Effect.undefined

  /**
   * Makes a call. The server may close an idle connection while the gateway sends on it. Only then the call is made again, in
   * what is left of its time, because the server has done nothing yet.
   */
  const attempt = <A, R>(
    call: Effect.Effect<A, EarlyError, R>,
    errorOf: (error: EarlyError) => CallError = callErrorOf
  ) =>
    Effect.catch(call, (error) =>
      wasClosedIdle(error) ? Effect.mapError(call, errorOf) : Effect.fail(errorOf(error))
    )

  const readObject = Effect.fnUntraced(function* <A>(
    call: UpstreamCall,
    expected: Expected<A>,
    share: AnswerShare
  ) {
    const head = yield* call.head
    if (head.status !== 200) return yield* refusedBy(call, head)
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
  ) =>
    Effect.suspend(() => {
      const leftMs = timer(ms)
      return attempt(
        Effect.acquireUseRelease(
          Effect.map(traceparent, (traceparent) => send(path, body, leftMs, traceparent, of)),
          (call) => readObject(call, expected, share),
          (call) => Effect.sync(() => call.close())
        )
      )
    })

  /** A call of the gateway itself. No client caused it, so every error counts as a failure of the backend. */
  const lookUp = <A>(path: Path, body: string | null, expected: Expected<A>, ms: number) =>
    Effect.mapError(Effect.scoped(ask(path, body, expected, uncounted, ms)), (error) =>
      error._tag === "BackendFailed" ? error : new BackendFailed({ fault: "status", cause: error })
    )

  let toldOf: string | undefined
  /** Says once of a version that it is too old. */
  const tellOf = ({ tooOld }: Pinged) => {
    if (tooOld === undefined || tooOld === toldOf) return Effect.void
    toldOf = tooOld
    return Effect.logWarning("the model server is too old", { version: tooOld, oldest: oldestVersion })
  }

  const { endingSoon, ping } = watchPings(
    Effect.tap(lookUp("ping", null, pinged, pingTimeoutMs), tellOf),
    options.notAnsweringMs ?? 5000
  )

  /** A call with frames, made as often as it has to be until the first of them is in. */
  const running = (kind: FrameKind, admitted: Facts<"Audit">, share: AnswerShare): Running => {
    const { call, model, request } = admitted
    // First: a request whose own time is over has waited the whole time.
    const own = timer(options.firstByteTimeoutMs)
    const silent = silence.begin(model.name, call.plan.collects)
    const leftMs = () => Math.min(own(), silent.leftMs())
    const limits = { bounds: frameBoundsOf(call), share, isFolded: !request.stream, heard: silent.frame }
    let upstream: UpstreamCall | undefined
    const made: Effect.Effect<Begun, EarlyError> = Effect.flatMap(traceparent, (traceparent) => {
      const sent = send(kind, streamBodyOf(model.name, call), leftMs, traceparent, admitted)
      upstream = sent
      return Effect.flatMap(sent.head, (head): Effect.Effect<Begun, EarlyError> => {
        if (head.status !== 200) return refusedBy(sent, head)
        if (head.encoded || !framesType.test(head.contentType))
          return protocol(`content type ${head.contentType.slice(0, 100)}`)
        const rest = pullFrames(sent, kind, head, limits)
        return Effect.map(rest, (frames) => {
          sent.setDeadline(timer(options.maxDurationMs ?? 1_800_000), "longer than the maximal duration")
          return { frames, rest }
        })
      })
    })
    const errorOf = (early: EarlyError): CallError => {
      const error = callErrorOf(early)
      return own() > 0 && wasLate(error)
        ? new BackendFailed({ fault: "timeout", cause: new SilentBefore("the model is silent") })
        : error
    }
    return {
      begun: endingSoon(attempt(made, errorOf)),
      close: () => {
        silent.end()
        upstream?.close()
        return undefined
      }
    }
  }

  return Backend.of({
    forward: (permit, share) => {
      const { kind } = permit.facts.request
      if (kind !== "chat" && kind !== "generate") return protocol(`${kind} does not answer in frames`)
      return streamWithBreaker(breaker, permit, (admitted) => running(kind, admitted, share))
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
    ping,
    guards: yield* GuardsInForce
  })
})

/** An error before the first frame. */
type EarlyError = CallError | TransportError | Cause.Done

const callErrorOf = (error: EarlyError): CallError => {
  if (error instanceof TransportError) return fromTransport(error)
  return Cause.isDone(error)
    ? new BackendFailed({ fault: "cut", cause: new Error("ended before its first frame") })
    : error
}

/** The content type of frames. */
const framesType = /^application\/(x-ndjson|json)\s*(;|$)/

/** Fails with what a status other than 200 says. */
const refusedBy = (call: UpstreamCall, head: Head) =>
  Effect.flatMap(beginningOf(call), (text) => Effect.fail(fromStatus(head, text)))

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
