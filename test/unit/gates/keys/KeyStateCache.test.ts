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
import { memoryKey } from "../../../../src/gates/keys/memory.ts"
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

const freshKeys = (options: KeyStateCacheOptions) => Effect.provide(makeKeyStateCache(options), Metrics.layer)

const all: Read = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix)))
const down: Read = () => Effect.fail(new Unavailable({ gate: "KeyStore", cause: new Error("down") }))
const hung: Read = () => Effect.never

const test = testWith(it.effect)

test("when a state is older than the bound, then the database is asked, and its failure is the answer", function* () {
  const database = makeDatabase(all)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  yield* keys.confirmed("a")
  database.answer = down
  yield* TestClock.adjust("990 millis")
  assert.isTrue((yield* keys.confirmed("a"))?.state.usable)
  yield* TestClock.adjust("20 millis")
  assert.strictEqual((yield* Effect.flip(keys.confirmed("a")))._tag, "Unavailable")
})

test("when a key is in use, then the poll alone keeps it fresh, all keys in one read", function* () {
  const database = makeDatabase(all)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  yield* keys.confirmed("a")
  yield* keys.confirmed("b")
  database.asked.length = 0
  for (let n = 0; n < 50; n += 1) {
    yield* TestClock.adjust("100 millis")
    yield* keys.confirmed("a")
    yield* keys.confirmed("b")
  }
  assert.isAbove(database.asked.length, 10)
  assert.isBelow(database.asked.length, 20)
  assert.isTrue(database.asked.every((prefixes) => prefixes.length === 2))
})

test("when a poll finds a key changed, then the answer changes", function* () {
  const database = makeDatabase(all)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  yield* keys.confirmed("a")
  database.answer = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix, false)))
  yield* TestClock.adjust("400 millis")
  assert.isFalse((yield* keys.confirmed("a"))?.state.usable)
})

test("when the database hangs, then an asker waits no longer than the bound", function* () {
  const database = makeDatabase(hung)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000, readTimeoutMs: 900 })
  const asking = yield* Effect.forkChild(Effect.flip(keys.confirmed("a")), { startImmediately: true })
  yield* TestClock.adjust("901 millis")
  assert.strictEqual((yield* Fiber.join(asking))._tag, "Unavailable")
  database.answer = all
  yield* TestClock.adjust("10 seconds")
  assert.isTrue((yield* keys.confirmed("a"))?.state.usable)
})

test("when a read began before an eviction, then its result is neither used nor kept", function* () {
  const gate = yield* Deferred.make<void>()
  const database = makeDatabase((prefixes) =>
    Effect.as(
      Deferred.await(gate),
      prefixes.map((prefix) => stateOf(prefix, true))
    )
  )
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  const asking = yield* Effect.forkChild(keys.confirmed("a"), { startImmediately: true })
  yield* Effect.yieldNow
  // The revocation is committed while the read, which has seen the old state, is on its way back.
  database.answer = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix, false)))
  yield* keys.evict("a")
  yield* Deferred.succeed(gate, undefined)
  assert.isFalse((yield* Fiber.join(asking))?.state.usable)
  assert.isFalse((yield* keys.confirmed("a"))?.state.usable)
})

test("when an older read ends after a newer one, then the newer result stays", function* () {
  const gate = yield* Deferred.make<void>()
  const database = makeDatabase(all)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  assert.isTrue((yield* keys.confirmed("a"))?.state.usable)
  // The poll is slow, and has seen the key before it was disabled.
  database.answer = (prefixes) => Effect.andThen(Deferred.await(gate), all(prefixes))
  yield* TestClock.adjust("500 millis")
  assert.lengthOf(database.asked, 2)
  yield* TestClock.adjust("501 millis")
  database.answer = (prefixes) => Effect.succeed(prefixes.map((prefix) => stateOf(prefix, false)))
  assert.isFalse((yield* keys.confirmed("a"))?.state.usable)
  yield* Deferred.succeed(gate, undefined)
  yield* TestClock.adjust("1 millis")
  assert.isFalse((yield* keys.confirmed("a"))?.state.usable)
})

test("when 2000 prefixes wait for a read, then the next one is refused at once", function* () {
  const database = makeDatabase(hung)
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  // Two reads are under way, with one prefix each.
  for (let n = 0; n < 2002; n += 1) {
    yield* Effect.forkChild(Effect.exit(keys.confirmed(`prefix${n}`)), { startImmediately: true })
  }
  assert.lengthOf(database.asked, 2)
  assert.strictEqual((yield* Effect.flip(keys.confirmed("one more")))._tag, "Unavailable")
})

test("when all are evicted, then the result of every read under way is dropped", function* () {
  const gate = yield* Deferred.make<void>()
  const database = makeDatabase((prefixes) =>
    Effect.as(
      Deferred.await(gate),
      prefixes.map((prefix) => stateOf(prefix, true))
    )
  )
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  const asking = yield* Effect.forkChild(keys.confirmed("a"), { startImmediately: true })
  yield* Effect.yieldNow
  database.answer = () => Effect.succeed([])
  yield* keys.evictAll
  yield* Deferred.succeed(gate, undefined)
  assert.isUndefined(yield* Fiber.join(asking))
})

test("when many ask at once, then there are few reads, and those who ask for one prefix share one", function* () {
  const database = makeDatabase((prefixes) => Effect.delay(all(prefixes), "5 millis"))
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  const flood = yield* Effect.forkChild(
    Effect.forEach(
      Array.from({ length: 900 }, (_, n) => `prefix${n % 300}`),
      keys.confirmed,
      { concurrency: "unbounded" }
    ),
    { startImmediately: true }
  )
  yield* TestClock.adjust("100 millis")
  assert.strictEqual((yield* Fiber.join(flood)).length, 900)
  assert.isBelow(database.asked.length, 8)
})

test("when nobody has a prefix, then the database is asked each time: absence is not remembered", function* () {
  const database = makeDatabase(() => Effect.succeed([]))
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  assert.isUndefined(yield* keys.confirmed("a"))
  database.answer = all
  assert.isDefined(yield* keys.confirmed("a"))
})

test("when a key expires between two reads, then it is refused", function* () {
  const database = makeDatabase((prefixes) =>
    Effect.succeed(prefixes.map((prefix) => stateOf(prefix, true, 100)))
  )
  const keys = yield* freshKeys({ read: database.read, freshnessMs: 1000 })
  assert.isFalse((yield* keys.confirmed("a"))?.expired)
  yield* TestClock.adjust("101 millis")
  assert.isTrue((yield* keys.confirmed("a"))?.expired)
})
