/** Clients of all kinds, without pause, until they are told that it is over. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { Random } from "../../test/fuzz/Random.ts"
import { type Key, newKey } from "../scale/World.ts"
import { ask, type Call, type Path } from "./ask.ts"
import { Ground } from "./Ground.ts"
import type { Observed } from "./Observed.ts"

export const limits = { rpm: 120, concurrent: 4, tpm: 4000, budget: 60_000 }

export interface Keys {
  readonly free: readonly [Key, ...Array<Key>]
  readonly rate: Key
  readonly slots: Key
  readonly tokens: Key
  readonly budget: Key
  /** asked with by nobody but whoever wants to know whether it works again */
  readonly probe: Key
}

export const makeKeys = Effect.gen(function* () {
  const first = yield* newKey("free-0")
  const more = yield* Effect.forEach([1, 2, 3, 4, 5], (i) => newKey(`free-${i}`))
  const keys: Keys = {
    free: [first, ...more],
    rate: yield* newKey("rate", { rpm: limits.rpm }),
    slots: yield* newKey("slots", { concurrent: limits.concurrent }),
    tokens: yield* newKey("tokens", { tpm: limits.tpm }),
    budget: yield* newKey("budget", {}, { budgetDaily: limits.budget }),
    probe: yield* newKey("probe")
  }
  return keys
})

const paths: readonly [Path, ...Array<Path>] = [
  "/api/chat",
  "/api/chat",
  "/v1/chat/completions",
  "/v1/chat/completions",
  "/api/generate",
  "/v1/completions",
  "/api/embed",
  "/v1/embeddings"
]
const lists: readonly [Path, ...Array<Path>] = ["/api/tags", "/v1/models", "/api/version"]

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const base62 = (random: Random, count: number): string =>
  Array.from({ length: count }, () => alphabet[random.int(62)]).join("")

/** What the next client asks. */
const nextCall = (keys: Keys, random: Random): Call => {
  const path = random.pick(paths)
  const slow = path.includes("chat") && random.chance(3)
  const good = {
    kind: "good",
    key: random.pick(keys.free),
    path,
    model: slow ? "slow" : "short",
    stream: !path.includes("embed") && !random.chance(3),
    leaves: false
  } as const satisfies Call
  const limited = (key: Key): Call => ({ ...good, kind: "limited", key, path: "/api/chat" })
  const dice = random.int(100)
  if (dice < 10) return limited(keys.rate)
  // Its clients stay: one that leaves may be gone before the backend knows.
  if (dice < 25) return limited(keys.slots)
  if (dice < 31) return { ...limited(keys.tokens), model: "short" }
  if (dice < 37) return limited(keys.budget)
  if (dice < 45) return { ...good, path: "/api/chat", model: "slow", stream: true, leaves: true }
  if (dice < 49) return { ...good, path: random.pick(lists), stream: false }
  const { name, secret } = random.pick(keys.free)
  const wrong = (tail: string): Call => ({ ...good, kind: "wrong key", key: { name, secret: tail } })
  if (dice < 52) return wrong(`${secret.slice(0, 12)}${base62(random, 32)}`)
  if (dice < 54) return wrong(`tg_${base62(random, 41)}`)
  if (dice < 56) return { ...good, kind: "no such model", model: "nothing" }
  if (dice < 58) return { ...good, kind: "blocked", path: "/api/pull" }
  if (dice < 60) return { ...good, kind: "bad body" }
  return good
}

/** `count` clients; each goes on until `over` says so. */
export const traffic = Effect.fnUntraced(function* (
  keys: Keys,
  observed: Observed,
  count: number,
  seed: number,
  over: () => boolean
) {
  const { replicas } = yield* Ground
  const client = (i: number) =>
    Effect.gen(function* () {
      const random = new Random(seed * 1000 + i + 1)
      while (!over()) {
        const { status } = yield* ask(observed, replicas, random.chance(2) ? 0 : 1, nextCall(keys, random))
        // Clients wait a moment after what did not go well.
        yield* Effect.sleep(status === 200 ? random.int(60) : 50 + random.int(200))
      }
    })
  yield* Effect.forEach(
    Array.from({ length: count }, (_, i) => i),
    client,
    { concurrency: "unbounded", discard: true }
  )
})

const freshnessMs = 1000

/** A key in use, revoked in the middle of it and asked with for a while longer, on both replicas. */
const useAndRevoke = Effect.fnUntraced(function* (
  key: Key,
  observed: Observed,
  revoke: Effect.Effect<void, unknown>,
  over: () => boolean
) {
  const { replicas } = yield* Ground
  const state: { revokedAt: number | undefined; done: boolean } = { revokedAt: undefined, done: false }
  let servedForMs = 0
  const call = {
    kind: "revoked",
    key,
    path: "/api/chat",
    model: "short",
    stream: false,
    leaves: false
  } as const
  const user = (replica: 0 | 1) =>
    Effect.gen(function* () {
      while (!state.done) {
        const { began, status } = yield* ask(observed, replicas, replica, call)
        const since = began - (state.revokedAt ?? began)
        if (status === 200) servedForMs = Math.max(servedForMs, since)
        if (status === 200 && since > freshnessMs)
          observed.violation(
            `fail-open: asked ${Math.round(since)} ms after its revocation and served, ${key.prefix}`
          )
        yield* Effect.sleep("40 millis")
      }
    })
  const revoker = Effect.gen(function* () {
    yield* Effect.sleep("1 second")
    // Tried until the database takes it: only then is it revoked.
    while (state.revokedAt === undefined && !over()) {
      const exit = yield* Effect.exit(Effect.timeout(revoke, "5 seconds"))
      if (exit._tag === "Success") state.revokedAt = performance.now()
      else yield* Effect.sleep("100 millis")
    }
    yield* Effect.sleep("3 seconds")
    state.done = true
  })
  yield* Effect.all([user(0), user(1), revoker], { concurrency: "unbounded", discard: true })
  if (state.revokedAt !== undefined) observed.servedForMs.push(servedForMs)
})

/** Key after key, by the command's way and by the other console's in turn. */
export const revocations = Effect.fnUntraced(function* (
  keys: ReadonlyArray<Key>,
  observed: Observed,
  over: () => boolean
) {
  const [registry, pg] = [yield* Registry, yield* PgClient.PgClient]
  for (const [i, key] of keys.entries()) {
    if (over()) return
    const revoke =
      i % 2 === 0
        ? Effect.asVoid(registry.revokeKey(key.prefix))
        : Effect.asVoid(pg`INSERT INTO revocations (key_prefix) VALUES (${key.prefix})`)
    yield* useAndRevoke(key, observed, revoke, over)
  }
})
