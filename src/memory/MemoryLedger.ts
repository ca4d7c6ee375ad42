/**
 * The memory of all requests in this process, in bytes of memory, from the first byte of a body until the client has the last one of
 * its answer. Whoever holds more than a fair share (`FairShare.ts`) gets no more: a key with much of it gets a 429, others a 503.
 *
 * All requests take at most `maxBytes` and one answer more, which may not be larger than `maxBytes` itself. A request counts as
 * `requestBytes`. Its body counts as what is received, then as what it can become while it is decoded, then as the texts that are kept.
 */
import { Context, Effect, Layer, Result } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { RateLimited, Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { FairShare, type Owner } from "./FairShare.ts"

/** Bytes of each answer that count for its request. */
export const freeBytes = 65_536
/** The objects of a request, the buffers of its connections (50 KB, `test/edge/memory.test.ts`), and the free bytes of its answer. */
export const requestBytes = freeBytes + 32_768
/** Bytes of a body before authentication that count for its connection (`plan.ts`). */
const smallBytes = 4096
/**
 * The part of the memory that callers have together who are not known yet. A key with as much is told that it has too much; otherwise
 * the crowd is the reason.
 */
const smallPart = 1 / 8
/** How long an answer may wait for memory. */
const maxWaitMs = 10_000

export interface MemoryOptions {
  readonly maxBytes: number
  /** for tests; default `requestBytes` */
  readonly requestBytes?: number
  /** for tests; default 10 seconds */
  readonly maxWaitMs?: number
}

export type NoRoom = RateLimited | Unavailable

/** The memory for a body. */
export interface BodyShare {
  /** Takes memory for `bytes` in total. When there is none, the share does not change. */
  grow(bytes: number): NoRoom | undefined
}

/** The memory for the body of a caller that is not known yet. */
export interface EarlyShare extends BodyShare {
  /** Gives all of it back. */
  close(): void
}

/** The memory of one answer. */
export interface AnswerShare {
  /**
   * Sets what is collected to `bytes` in total. An answer without room waits, and its connection to the backend is not read. Of all that
   * wait, the one with the least still to come goes on beyond the shares, one at a time, so that none waits for ever. Fails after
   * `maxWaitMs`.
   */
  collect(bytes: number): Effect.Effect<void, Unavailable>
  /**
   * Sets the bytes that wait for the client. From here on nothing is collected. It never waits, because an answer comes at the speed of
   * the backend. When its tenant holds too much, the slowest reader of that tenant is cut: the one with the largest product of its bytes
   * and the time since it took some, or since it began when it counts whole. The only reader of a tenant is cut when all requests take
   * more than `maxBytes`.
   */
  hold(bytes: number): void
}

/** The memory of one request. */
export interface RequestShare extends BodyShare, AnswerShare {
  /** Takes what the body can become while it is decoded. That takes no time, so only the process must have room, not the key. */
  decode(bytes: number): NoRoom | undefined
  /** Sets the most that the answer may take. */
  expect(bytes: number): void
  /** Gives everything back, after the last byte of the answer. */
  close(): void
}

/** Who gives a share back at its own end. */
export interface Holder {
  share: RequestShare | undefined
}

export interface ShareOptions {
  readonly caller: Pick<Caller, "keyId" | "limits" | "tenantId">
  /** Ends the connection of the client, because its memory is needed for others. */
  readonly cut: () => void
}

/** The memory of the gateway's own calls. They are few at a time, and each has a bound. */
export const uncounted: AnswerShare = { collect: () => Effect.void, hold: () => undefined }

interface Request extends ShareOptions {
  /** of itself and its body */
  body: number
  collected: number
  unread: number
  /** the most that its answer may take */
  expected: number
  /** when its client last took bytes, in monotonic ms */
  since: number
  /** its connection was cut, so what waits for its client goes soon */
  isCut: boolean
}

/** An answer that waits until it may have `bytes` in total. */
interface Waiter {
  readonly request: Request
  readonly bytes: number
  readonly go: () => void
}

const strangers: Owner = { tenantId: "", keyId: "" }

const counted = (bytes: number): number => Math.max(0, bytes - freeBytes)

/** The process has no more of what requests share. */
export const crowded = (cause: string): Unavailable =>
  new Unavailable({ gate: "Limiter", retryAfterS: 1, crowded: true, cause })

const noAnswer = () => crowded("no memory for another answer")

const make = Effect.fnUntraced(function* (options: MemoryOptions) {
  const { maxBytes, requestBytes: ownBytes = requestBytes } = options
  const metrics = yield* Metrics
  const nowMs = yield* makeMonotonicMs
  const shares = new FairShare(maxBytes)
  const unreadAnswers = new Set<Request>()
  const waiters = new Set<Waiter>()
  /** the answer that may go beyond the shares */
  let first: Request | undefined
  let cuts = 0

  const noRoom = ({ caller }: Request): NoRoom =>
    shares.heldByKey(caller) > maxBytes * smallPart
      ? new RateLimited({ limit: "concurrency", value: caller.limits.concurrent, retryAfterS: 1 })
      : crowded("no memory for another request")

  const setBody = (request: Request, bytes: number): void => {
    shares.take(request.caller, bytes - request.body)
    request.body = bytes
  }

  const change = (request: Request, collected: number, unread: number): void => {
    shares.take(request.caller, collected + unread - request.collected - request.unread)
    request.collected = collected
    request.unread = unread
    if (unread === 0) unreadAnswers.delete(request)
    else unreadAnswers.add(request)
  }

  const tryCollect = (request: Request, bytes: number): boolean => {
    const more = bytes - request.collected
    if (more > 0 && request !== first && !shares.fits(request.caller, more)) return false
    change(request, bytes, request.unread)
    return true
  }

  const remaining = ({ request }: Waiter): number => request.expected - request.collected

  /** Lets the answers go on that have room now, and one more: that with the least still to come. */
  const admitWaiting = (): void => {
    if (waiters.size === 0) return
    const order = [...waiters].sort((one, other) => remaining(one) - remaining(other))
    if (first === undefined) first = order[0]?.request
    // One that goes on may let others go on before this loop comes to them.
    for (const waiter of order)
      if (waiters.has(waiter) && tryCollect(waiter.request, waiter.bytes)) waiter.go()
  }

  const collect = (request: Request, bytes: number): Effect.Effect<void, Unavailable> => {
    if (bytes > maxBytes) return noAnswer()
    const gives = bytes < request.collected
    if (tryCollect(request, bytes)) {
      if (gives) admitWaiting()
      return Effect.void
    }
    return Effect.callback<void>((resume) => {
      const leave = () => waiters.delete(waiter)
      const waiter: Waiter = { request, bytes, go: () => (leave(), resume(Effect.void)) }
      waiters.add(waiter)
      admitWaiting()
      return Effect.sync(leave)
    }).pipe(Effect.timeoutOrElse({ duration: options.maxWaitMs ?? maxWaitMs, orElse: noAnswer }))
  }

  /** The slowest reader of those that `isOf` selects, unless it is the only one and there is room for it. */
  const slowest = (isOf: (request: Request) => boolean): Request | undefined => {
    const [now, found] = [nowMs(), [...unreadAnswers].filter(isOf)]
    const cost = ({ since, unread }: Request) => unread * (now - since + 1)
    if (found.length < 2 && shares.total <= maxBytes) return undefined
    return found.toSorted((one, other) => cost(other) - cost(one))[0]
  }

  /** Cuts readers until the unread answers of `caller` fit. */
  const cutSlowest = ({ caller }: Request): void => {
    while (!shares.fits(caller)) {
      const request = slowest(
        shares.tenantFits(caller)
          ? (other) => other.caller.keyId === caller.keyId
          : (other) => other.caller.tenantId === caller.tenantId
      )
      if (request === undefined) return
      change(request, request.collected, 0)
      request.isCut = true
      cuts += 1
      request.cut()
    }
  }

  const hold = (request: Request, bytes: number): void => {
    const unread = request.isCut ? 0 : counted(bytes)
    const wasFirst = first === request
    if (unread === request.unread && request.collected === 0 && !wasFirst) return
    if (wasFirst) first = undefined
    if (unread < request.unread || request.unread === 0) request.since = nowMs()
    const grows = unread > request.unread
    change(request, 0, unread)
    if (grows) cutSlowest(request)
    admitWaiting()
  }

  const end = (request: Request): void => {
    if (first === request) first = undefined
    setBody(request, 0)
    change(request, 0, 0)
    admitWaiting()
  }

  const probe = (name: string, help: string, read: () => number, type: "gauge" | "counter" = "gauge") =>
    metrics.probe({ name, help, type, read: Effect.sync(read) })
  yield* probe("tollgate_memory_max_bytes", "Memory for requests and their answers", () => maxBytes)
  yield* probe("tollgate_memory_bytes", "What requests and answers hold or may become", () => shares.total)
  yield* probe(
    "tollgate_answers_waiting",
    "Answers that wait for memory before more is read",
    () => waiters.size
  )
  yield* probe("tollgate_unread_answers_cut", "Unread answers cut since the start", () => cuts, "counter")

  return {
    /** bytes of all requests */
    bytes: () => shares.total,
    /** number of answers that wait for memory */
    waiting: () => waiters.size,
    /** The memory for a body before authentication. */
    early: (): EarlyShare => {
      let own = 0
      const grow = (bytes: number): NoRoom | undefined => {
        const more = Math.max(0, bytes - smallBytes) - own
        if (more === 0) return undefined
        const free = Math.min(maxBytes * smallPart - shares.heldByKey(strangers), maxBytes - shares.total)
        if (more > 0 && more > free) return crowded("no memory for another request")
        own += more
        shares.take(strangers, more)
        return undefined
      }
      return { grow, close: () => void grow(0) }
    },
    /** The memory of a request, until `holder` closes it. Fails when its key has no room for another one. */
    share: (holder: Holder, options: ShareOptions): Result.Result<RequestShare, NoRoom> => {
      const request: Request = {
        ...options,
        body: 0,
        collected: 0,
        unread: 0,
        expected: 0,
        since: 0,
        isCut: false
      }
      if (!shares.fits(options.caller, ownBytes)) return Result.fail(noRoom(request))
      setBody(request, ownBytes)
      const share: RequestShare = {
        grow: (bytes) => {
          const before = request.body
          setBody(request, ownBytes + bytes)
          if (bytes === 0 || shares.fits(request.caller)) return undefined
          setBody(request, before)
          return noRoom(request)
        },
        decode: (bytes) => {
          if (shares.total - request.body + ownBytes + bytes > maxBytes) return noRoom(request)
          setBody(request, ownBytes + bytes)
          return undefined
        },
        expect: (bytes) => void (request.expected = bytes),
        collect: (bytes) =>
          counted(bytes) === request.collected ? Effect.void : collect(request, counted(bytes)),
        hold: (bytes) => hold(request, bytes),
        close: () => end(request)
      }
      holder.share = share
      return Result.succeed(share)
    }
  }
})

export class MemoryLedger extends Context.Service<MemoryLedger>()("tollgate/memory/MemoryLedger", { make }) {
  static readonly layer = (options: MemoryOptions): Layer.Layer<MemoryLedger, never, Metrics> =>
    Layer.effect(MemoryLedger, make(options))
}
