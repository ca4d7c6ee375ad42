/**
 * The states of keys in the database. A state is returned only if a read that started at most `freshnessMs` ago confirmed
 * it.
 *
 * One poll asks for all recently used keys again, so that a busy key is answered from memory. Other keys are read on
 * demand: requests for one prefix share a read that starts after them. While two reads run, further requests wait for the
 * next read together, so a flood of unknown prefixes costs few queries.
 */
import { Array as Arr, Deferred, Effect, Exit, type Scope } from "effect"
import type { Metrics } from "../../observability/Metrics.ts"
import type { Caller } from "../../domain/Caller.ts"
import { Unavailable } from "../../domain/Errors.ts"
import { makeMonotonicMs, timeoutDetached } from "../../infra/time.ts"
import { background, spaced } from "../../observability/background.ts"
import { makeLruCache } from "../../infra/LruCache.ts"

/** One key with its tenant, from one read. */
export interface KeyState {
  readonly prefix: string
  /** another one when anything of the key or of its tenant is different, or when the key has expired */
  readonly version: string
  readonly hash: string
  /** active, tenant enabled, not revoked and not expired, by the database's clock */
  readonly usable: boolean
  /** milliseconds from the read to the expiry; undefined when the key never expires */
  readonly expiresInMs: number | undefined
  readonly caller: Caller
}

/** Versions by prefix; undefined when the state is not known. */
export type KnownVersions = ReadonlyMap<string, string | undefined>

/** States by prefix; undefined when no key has the prefix. */
export type ChangedStates = ReadonlyMap<string, KeyState | undefined>

export interface KeyStateCacheOptions {
  /** Reads the states whose version is not the known one. */
  readonly read: (known: KnownVersions) => Effect.Effect<ChangedStates, Unavailable>
  readonly freshnessMs: number
  /** default 900: a request gets an answer or a refusal within this time */
  readonly readTimeoutMs?: number
  /** keys that are kept, about 1.5 kB each; default 20,000 */
  readonly capacity?: number
}

/** A fresh state. */
export interface Confirmed {
  readonly state: KeyState
  /** whether the key has expired since the read */
  readonly expired: boolean
}

export interface KeyStateCache {
  /** Undefined: no key has this prefix. A fresh state is there at once: then it is an `Exit`. */
  confirmed(prefix: string): Effect.Effect<Confirmed | undefined, Unavailable>
  readonly evict: (prefix: string) => Effect.Effect<void>
  readonly evictAll: Effect.Effect<void>
}

/** A state, and when it was read first and confirmed last, in monotonic ms. */
interface Reading {
  readonly state: KeyState
  readonly readAt: number
  readonly confirmedAt: number
}

interface Cached {
  reading: Reading
  usedAt: number
}

/**
 * A read that runs. Eviction fences it: what it finds of the evicted prefix may be older than the change, so it is not used, and the
 * requests that wait for it read again.
 */
interface Flight {
  readonly startedAt: number
  readonly fenced: Set<string>
  fencedAll: boolean
}

/** Undefined: no key has the prefix. Fenced: it was evicted during the read. */
type Found = Reading | undefined | "fenced"
type Answer = Deferred.Deferred<Found, Unavailable>

const maxFlights = 2
const maxPerFlight = 500
const maxWaiting = 2000
/** Keys that are polled, and those of one statement. For 10,000 the database takes 0.15 s of CPU a second. */
const maxPolled = 10_000
const maxPerPoll = 1000
/** A key that was not used for this long is not polled; it is read on demand. */
const idleMs = 10_000

const unanswered = () =>
  new Unavailable({
    gate: "KeyStore",
    retryAfterS: 1,
    cause: new Error("the database did not answer in time")
  })

export const makeKeyStateCache = Effect.fnUntraced(function* (
  options: KeyStateCacheOptions
): Effect.fn.Return<KeyStateCache, never, Metrics | Scope.Scope> {
  const nowMs = yield* makeMonotonicMs
  const scope = yield* Effect.scope
  const { capacity = 20_000, freshnessMs, readTimeoutMs = 900 } = options
  const cache = makeLruCache<Cached>(capacity)
  const flights = new Set<Flight>()
  const waiting = new Map<string, Answer>()
  let reading = 0

  /** Keeps what a read found, unless a later read found something. `onDemand`: also for a key that is not kept yet. */
  const keep = (prefix: string, found: Reading | undefined, startedAt: number, onDemand: boolean) => {
    const entry = cache.peek(prefix)
    if (entry !== undefined && entry.reading.confirmedAt >= startedAt) return
    if (found === undefined) cache.delete(prefix)
    else if (entry !== undefined) entry.reading = found
    // The poll must not bring back an entry that was evicted meanwhile.
    else if (onDemand) cache.set(prefix, { reading: found, usedAt: nowMs() })
  }

  /** Reads states, and returns what was found of each prefix. */
  const read = Effect.fnUntraced(function* (prefixes: ReadonlyArray<string>, onDemand: boolean) {
    const flight: Flight = { startedAt: nowMs(), fenced: new Set(), fencedAll: false }
    flights.add(flight)
    const known = new Map(prefixes.map((prefix) => [prefix, cache.peek(prefix)?.reading]))
    const versions = new Map([...known].map(([prefix, reading]) => [prefix, reading?.state.version]))
    const changed = yield* options.read(versions).pipe(
      timeoutDetached(readTimeoutMs),
      Effect.catchTag("TimeoutError", () => Effect.fail(unanswered())),
      Effect.ensuring(Effect.sync(() => flights.delete(flight)))
    )
    const { startedAt } = flight
    const foundOf = (prefix: string): Found => {
      if (flight.fencedAll || flight.fenced.has(prefix)) return "fenced"
      const before = known.get(prefix)
      if (!changed.has(prefix)) return before && { ...before, confirmedAt: startedAt }
      const state = changed.get(prefix)
      return state && { state, readAt: startedAt, confirmedAt: startedAt }
    }
    const found = new Map(prefixes.map((prefix) => [prefix, foundOf(prefix)]))
    for (const [prefix, one] of found) if (one !== "fenced") keep(prefix, one, startedAt, onDemand)
    return found
  })

  const readWaiting: Effect.Effect<void> = Effect.suspend(() => {
    if (reading >= maxFlights || waiting.size === 0) return Effect.void
    const answers = [...waiting].slice(0, maxPerFlight)
    for (const [prefix] of answers) waiting.delete(prefix)
    reading += 1
    const prefixes = answers.map(([prefix]) => prefix)
    return Effect.exit(read(prefixes, true)).pipe(
      Effect.flatMap((exit) =>
        Effect.forEach(
          answers,
          ([prefix, answer]) =>
            Deferred.done(
              answer,
              Exit.map(exit, (found) => found.get(prefix))
            ),
          { discard: true }
        )
      ),
      Effect.ensuring(Effect.sync(() => void (reading -= 1))),
      Effect.andThen(readWaiting),
      Effect.forkIn(scope, { startImmediately: true }),
      Effect.asVoid
    )
  })

  const readOnDemand = Effect.fnUntraced(function* (prefix: string) {
    for (;;) {
      const own: Answer = yield* Deferred.make<Found, Unavailable>()
      const answer = waiting.get(prefix) ?? own
      if (answer === own) {
        if (waiting.size >= maxWaiting) return yield* unanswered()
        waiting.set(prefix, own)
      }
      yield* readWaiting
      const found = yield* Deferred.await(answer)
      if (found !== "fenced") return found
    }
  })

  const confirm = ({ readAt, state }: Reading): Confirmed => ({
    state,
    expired: state.expiresInMs !== undefined && nowMs() >= readAt + state.expiresInMs
  })

  const confirmed = (prefix: string): Effect.Effect<Confirmed | undefined, Unavailable> => {
    const now = nowMs()
    const entry = cache.get(prefix)
    if (entry !== undefined) entry.usedAt = now
    if (entry !== undefined && now - entry.reading.confirmedAt <= freshnessMs)
      return Effect.succeed(confirm(entry.reading))
    return readOnDemand(prefix).pipe(
      Effect.timeoutOrElse({ duration: readTimeoutMs, orElse: () => Effect.fail(unanswered()) }),
      Effect.map((found) => found && confirm(found))
    )
  }

  const poll = Effect.suspend(() => {
    const now = nowMs()
    const used: Array<string> = []
    for (const [prefix, entry] of cache.entries()) {
      if (now - entry.usedAt <= idleMs) used.push(prefix)
    }
    // Beyond the bound the least recently used keys are read on demand.
    const polled = Arr.chunksOf(used.slice(-maxPolled), maxPerPoll)
    return Effect.forEach(polled, (some) => read(some, false), { discard: true })
  })

  yield* background("key_refresh", poll, spaced(Math.max(10, freshnessMs / 3)))

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
