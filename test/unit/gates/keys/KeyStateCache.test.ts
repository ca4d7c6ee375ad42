import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import * as Metrics from "../../../../src/observability/Metrics.ts"
import { Unavailable } from "../../../../src/domain/Errors.ts"
import {
  type KeyStateCacheOptions,
  type KeyState,
  type KnownVersions,
  makeKeyStateCache
} from "../../../../src/gates/keys/KeyStateCache.ts"
import { memoryKey } from "../../../support/twins/KeyStore.ts"
import { testWith } from "../../../support/testWith.ts"

const stateOf = (prefix: string, usable = true, expiresInMs?: number): KeyState => ({
  prefix,
  version: `${usable} ${expiresInMs}`,
  hash: "hash",
  usable,
  expiresInMs,
  caller: memoryKey({ keyPrefix: prefix }).caller
})

type Read = (prefixes: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<KeyState>, Unavailable>

/** A database that answers as told with what has changed, and remembers what it was asked. */
const makeDatabase = (initial: Read) => {
  const asked: Array<ReadonlyArray<string>> = []
  const database = {
    asked,
    answer: initial,
    read: (known: KnownVersions) =>
      Effect.suspend(() => {
        const prefixes = [...known.keys()]
        asked.push(prefixes)
        return Effect.map(database.answer(prefixes), (states) => {
          const found = new Map(states.map((state) => [state.prefix, state]))
          return new Map(
            prefixes
              .map((prefix) => [prefix, found.get(prefix)] as const)
              .filter(([prefix, state]) => state === undefined || state.version !== known.get(prefix))
          )
        })
      })
  }
  return database
}

/** A cache whose states are fresh for a second, before a database. */
const cacheOn = Effect.fnUntraced(function* (initial: Read, options: Partial<KeyStateCacheOptions> = {}) {
  const database = makeDatabase(initial)
  const keys = yield* makeKeyStateCache({ read: database.read, freshnessMs: 1000, ...options })
  const isUsable = Effect.suspend(() => Effect.map(keys.confirmed("a"), (found) => found?.state.usable))
  return { database, isUsable, keys }
}, Effect.provide(Metrics.layer))

const asking = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })
const disabled: Read = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix, false)))

const all: Read = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix)))
const down: Read = () => Effect.fail(new Unavailable({ gate: "KeyStore", cause: new Error("down") }))
const hung: Read = () => Effect.never

const test = testWith(it.effect)

test("when a state is older than the bound, then the database is asked, and its failure is the answer", function* () {
  const { database, isUsable } = yield* cacheOn(all)
  yield* isUsable
  database.answer = down
  yield* TestClock.adjust("990 millis")
  assert.isTrue(yield* isUsable)
  yield* TestClock.adjust("20 millis")
  assert.strictEqual((yield* Effect.flip(isUsable))._tag, "Unavailable")
})

test("when a key is in use, then the poll alone keeps it fresh, all keys in one read", function* () {
  const { database, keys } = yield* cacheOn(all)
  const use = Effect.forEach(["a", "b"], keys.confirmed)
  yield* use
  database.asked.length = 0
  for (let n = 0; n < 50; n += 1) yield* Effect.andThen(TestClock.adjust("100 millis"), use)
  assert.isAbove(database.asked.length, 10)
  assert.isBelow(database.asked.length, 20)
  assert.isTrue(database.asked.every((prefixes) => prefixes.length === 2))
  // "b" is not used any more: it is polled for ten seconds.
  const useOne = Effect.flatMap(TestClock.adjust("100 millis"), () => keys.confirmed("a"))
  yield* Effect.replicateEffect(useOne, 98)
  assert.deepStrictEqual(database.asked.at(-1), ["b", "a"])
  database.asked.length = 0
  yield* Effect.replicateEffect(useOne, 10)
  assert.deepStrictEqual(database.asked.at(-1), ["a"])
})

test("when the database hangs, then an asker waits no longer than the bound", function* () {
  const { database, isUsable } = yield* cacheOn(hung, { readTimeoutMs: 900 })
  const waiting = yield* asking(Effect.flip(isUsable))
  yield* TestClock.adjust("901 millis")
  assert.strictEqual((yield* Fiber.join(waiting))._tag, "Unavailable")
  database.answer = all
  yield* TestClock.adjust("10 seconds")
  assert.isTrue(yield* isUsable)
})

for (const evicts of ["evict", "evictAll"] as const)
  test(`when a read began before an eviction (${evicts}), then its result is neither used nor kept`, function* () {
    const gate = yield* Deferred.make<void>()
    const { database, isUsable, keys } = yield* cacheOn((prefixes) =>
      Effect.andThen(Deferred.await(gate), all(prefixes))
    )
    const reading = yield* asking(isUsable)
    yield* Effect.yieldNow
    // The revocation is committed while the read, which has seen the old state, is on its way back.
    database.answer = disabled
    yield* evicts === "evict" ? keys.evict("a") : keys.evictAll
    yield* Deferred.succeed(gate, undefined)
    assert.isFalse(yield* Fiber.join(reading))
    assert.isFalse(yield* isUsable)
  })

test("when an older read ends after a newer one, then the newer result stays", function* () {
  const gate = yield* Deferred.make<void>()
  const { database, isUsable } = yield* cacheOn(all)
  assert.isTrue(yield* isUsable)
  // The poll is slow, and has seen the key before it was disabled.
  database.answer = (prefixes) => Effect.andThen(Deferred.await(gate), all(prefixes))
  yield* TestClock.adjust("500 millis")
  assert.lengthOf(database.asked, 2)
  yield* TestClock.adjust("501 millis")
  database.answer = disabled
  assert.isFalse(yield* isUsable)
  yield* Deferred.succeed(gate, undefined)
  yield* TestClock.adjust("1 millis")
  assert.isFalse(yield* isUsable)
})

test("when 2000 prefixes wait for a read, then the next one is refused at once", function* () {
  const { database, keys } = yield* cacheOn(hung)
  // Two reads are under way, with one prefix each.
  for (let n = 0; n < 2002; n += 1) yield* asking(Effect.exit(keys.confirmed(`prefix${n}`)))
  assert.lengthOf(database.asked, 2)
  assert.strictEqual((yield* Effect.flip(keys.confirmed("one more")))._tag, "Unavailable")
})

test("when many ask at once, then there are few reads, and those who ask for one prefix share one", function* () {
  const { database, keys } = yield* cacheOn((prefixes) => Effect.delay(all(prefixes), "5 millis"))
  const prefixes = Array.from({ length: 900 }, (_, n) => `prefix${n % 300}`)
  const flood = yield* asking(Effect.forEach(prefixes, keys.confirmed, { concurrency: "unbounded" }))
  yield* TestClock.adjust("100 millis")
  assert.lengthOf(yield* Fiber.join(flood), 900)
  assert.isBelow(database.asked.length, 8)
})

test("when nobody has a prefix, then the database is asked each time: absence is not remembered", function* () {
  const { database, keys } = yield* cacheOn(() => Effect.succeed([]))
  assert.isUndefined(yield* keys.confirmed("a"))
  database.answer = all
  assert.isDefined(yield* keys.confirmed("a"))
  database.answer = () => Effect.succeed([])
  yield* TestClock.adjust("500 millis")
  assert.isUndefined(yield* keys.confirmed("a"))
})

test("when a key expires between two reads, then it is refused", function* () {
  const { keys } = yield* cacheOn((prefixes) =>
    Effect.succeed(prefixes.map((prefix) => stateOf(prefix, true, 100)))
  )
  assert.isFalse((yield* keys.confirmed("a"))?.expired)
  yield* TestClock.adjust("101 millis")
  assert.isTrue((yield* keys.confirmed("a"))?.expired)
})
