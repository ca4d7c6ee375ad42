/**
 * The states of keys in the database. A state is returned only if a read that started at most `freshnessMs` ago confirmed
 * it.
 *
 * *Details* One poll reads all recently used keys again, so that a busy key is answered from memory. Other keys are read on
 * demand: requests for one prefix share a read that starts after them. While two reads run, further requests wait for the
 * next read together, so a flood of unknown prefixes costs few queries.
 *
 * *Gotchas* Eviction also fences running reads: their result for the evicted prefix may be older than the change, so it is
 * not used, and the waiting requests read again.
 */
import { Deferred, Effect, Exit, type Scope } from "effect"
import type { Metrics } from "../../observability/Metrics.ts"
import type { Caller } from "../../domain/Caller.ts"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs, timeoutDetached } from "../../infra/time.ts"
import { background, spaced } from "../../observability/background.ts"
import { makeLruCache } from "../../infra/LruCache.ts"

/** One key with its tenant, from one read. */
export interface KeyState {
  readonly prefix: string
  readonly hash: string
  /** active, tenant enabled, not revoked and not expired, by the database's clock */
  readonly usable: boolean
  /** milliseconds from the read to the expiry; undefined when the key never expires */
  readonly expiresInMs: number | undefined
  readonly caller: Caller
}

export interface KeyStateCacheOptions {
  /** Reads the states of the existing `prefixes`, in any order. */
  readonly read: (prefixes: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<KeyState>, Unavailable>
  readonly freshnessMs: number
  /** default 900: a request gets an answer or a refusal within this time */
  readonly readTimeoutMs?: number
  /** default 10 000 */
  readonly capacity?: number
}

/** A fresh state. */
export interface Confirmed {
  readonly state: KeyState
  /** whether the key has expired since the read */
  readonly expired: boolean
}

export interface KeyStateCache {
  /** Returns undefined when no key has this prefix. A fresh state is there at once, without a step. */
  confirmed(prefix: string): Effect.Effect<Confirmed | undefined, Unavailable>
  readonly evict: (prefix: string) => Effect.Effect<void>
  readonly evictAll: Effect.Effect<void>
}

interface Reading {
  readonly startedAt: number
  readonly state: KeyState
}

interface Cached {
  reading: Reading
  usedAt: number
}

interface Flight {
  readonly startedAt: number
  readonly fenced: Set<string>
  fencedAll: boolean
}

type Answer = Deferred.Deferred<Reading | undefined | "fenced", Unavailable>

const maxFlights = 2
const maxPerFlight = 500
const maxWaiting = 2000
const maxPolled = 2000
/** A key that was not used for this long is not polled; it is read on demand. */
const idleMs = 10_000

const unanswered = new Unavailable({
  gate: "KeyStore",
  retryAfterS: 1,
  cause: new Error("the database did not answer in time")
})

export const makeKeyStateCache = Effect.fnUntraced(function* (
  options: KeyStateCacheOptions
): Effect.fn.Return<KeyStateCache, never, Metrics | Scope.Scope> {
  const nowMs = yield* makeMonotonicMs
  const scope = yield* Effect.scope
  const readTimeoutMs = options.readTimeoutMs ?? 900
  const cache = makeLruCache<Cached>(options.capacity ?? 10_000)
  const flights = new Set<Flight>()
  const waiting = new Map<string, Answer>()
  let reading = 0

  const store = (flight: Flight, prefix: string, state: KeyState | undefined, onDemand: boolean) => {
    if (flight.fencedAll || flight.fenced.has(prefix)) return
    const entry = cache.peek(prefix)
    if (entry !== undefined && entry.reading.startedAt >= flight.startedAt) return
    if (state === undefined) return cache.delete(prefix)
    const fresh = { startedAt: flight.startedAt, state }
    if (entry !== undefined) entry.reading = fresh
    // The poll must not bring back an entry that was evicted meanwhile.
    else if (onDemand) cache.set(prefix, { reading: fresh, usedAt: nowMs() })
  }

  const read = Effect.fnUntraced(function* (prefixes: ReadonlyArray<string>, onDemand: boolean) {
    const flight: Flight = { startedAt: nowMs(), fenced: new Set(), fencedAll: false }
    flights.add(flight)
    const exit = yield* options.read(prefixes).pipe(
      timeoutDetached(readTimeoutMs),
      Effect.catchTag("TimeoutError", () => Effect.fail(unanswered)),
      Effect.exit
    )
    flights.delete(flight)
    const states = Exit.map(exit, (found) => new Map(found.map((state) => [state.prefix, state])))
    if (Exit.isSuccess(states)) {
      for (const prefix of prefixes) store(flight, prefix, states.value.get(prefix), onDemand)
    }
    return { flight, states }
  })

  const readWaiting: Effect.Effect<void> = Effect.suspend(() => {
    if (reading >= maxFlights || waiting.size === 0) return Effect.void
    const answers = [...waiting].slice(0, maxPerFlight)
    for (const [prefix] of answers) waiting.delete(prefix)
    reading += 1
    return read(
      answers.map(([prefix]) => prefix),
      true
    ).pipe(
      Effect.map(({ flight, states }) => {
        for (const [prefix, answer] of answers) {
          if (Exit.isFailure(states)) Deferred.doneUnsafe(answer, Exit.failCause(states.cause))
          else if (flight.fencedAll || flight.fenced.has(prefix)) {
            Deferred.doneUnsafe(answer, Exit.succeed("fenced"))
          } else {
            const state = states.value.get(prefix)
            const found = state === undefined ? undefined : { startedAt: flight.startedAt, state }
            Deferred.doneUnsafe(answer, Exit.succeed(found))
          }
        }
      }),
      Effect.ensuring(
        Effect.sync(() => {
          reading -= 1
        })
      ),
      Effect.andThen(readWaiting),
      Effect.forkIn(scope, { startImmediately: true }),
      Effect.asVoid
    )
  })

  const readOnDemand = (prefix: string): Effect.Effect<Reading | undefined, Unavailable> =>
    Effect.suspend(() => {
      let answer = waiting.get(prefix)
      if (answer === undefined) {
        if (waiting.size >= maxWaiting) return Effect.fail(unanswered)
        answer = Deferred.makeUnsafe()
        waiting.set(prefix, answer)
      }
      return Effect.andThen(readWaiting, Deferred.await(answer))
    }).pipe(
      Effect.filterOrElse(
        (found) => found !== "fenced",
        () => readOnDemand(prefix)
      )
    )

  const confirm = (found: Reading): Confirmed => ({
    state: found.state,
    expired: found.state.expiresInMs !== undefined && nowMs() >= found.startedAt + found.state.expiresInMs
  })

  const confirmed: KeyStateCache["confirmed"] = (prefix) => {
    const now = nowMs()
    const entry = cache.get(prefix)
    if (entry !== undefined) {
      entry.usedAt = now
      if (now - entry.reading.startedAt <= options.freshnessMs) return Effect.succeed(confirm(entry.reading))
    }
    return readOnDemand(prefix).pipe(
      Effect.timeoutOrElse({ duration: readTimeoutMs, orElse: () => Effect.fail(unanswered) }),
      Effect.map((found) => (found === undefined ? undefined : confirm(found)))
    )
  }

  const poll = Effect.suspend(() => {
    const now = nowMs()
    const used: Array<string> = []
    for (const [prefix, entry] of cache.entries()) {
      if (now - entry.usedAt <= idleMs) used.push(prefix)
    }
    // Beyond the bound the least recently used keys are read on demand.
    return used.length === 0
      ? Effect.void
      : Effect.flatMap(read(used.slice(-maxPolled), false), ({ states }) => states)
  })

  yield* background("key_refresh", poll, spaced(Math.max(10, options.freshnessMs / 3)))

  return {
    confirmed,
    evict: (prefix) =>
      Effect.sync(() => {
        cache.delete(prefix)
        for (const flight of flights) flight.fenced.add(prefix)
      }),
    evictAll: Effect.sync(() => {
      cache.clear()
      for (const flight of flights) flight.fencedAll = true
    })
  }
})
