import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { FreeWorkExhausted } from "../../../src/domain/Errors.ts"
import { noResets } from "../../../src/domain/Limits.ts"
import { FreeWork } from "../../../src/http/FreeWork.ts"

const layer = FreeWork.layer({ perSecond: 10, burst: 20, keys: 3, maxWaiting: 5 })

/** "tenant/key"; a name alone is a tenant with one key. */
const spenderOf = (name: string) => ({ keyId: name, tenantId: name.split("/")[0] ?? name })
const key = spenderOf("key")

/** How many of `count` requests that cost nothing but themselves were let in. */
const ask = (count: number, keyId = "key", bodyBytes = 0) =>
  Effect.gen(function* () {
    const freeWork = yield* FreeWork
    let passed = 0
    for (let n = 0; n < count; n += 1) {
      if (Result.isFailure(freeWork.check(spenderOf(keyId)))) continue
      passed += 1
      freeWork.spend(spenderOf(keyId), bodyBytes)
    }
    return passed
  })

it.effect("when a key has used its burst, then it is refused until the second brings it more", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* ask(100), 20)
    yield* TestClock.adjust("500 millis")
    assert.strictEqual(yield* ask(100), 5)
    yield* TestClock.adjust("10 seconds")
    assert.strictEqual(yield* ask(100), 20, "never more than the burst")
    assert.strictEqual(yield* ask(100, "another"), 20, "another key has its own")
  }).pipe(Effect.provide(layer))
)

it.effect("when bodies were read for refusals, then each 16 KiB counts as one refusal more", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* ask(100, "key", 9 * 16_384), 2)
    yield* TestClock.adjust("1 second")
    assert.strictEqual(yield* ask(100, "key", 9 * 16_384), 1)
  }).pipe(Effect.provide(layer))
)

it.effect(
  "when a refusal cost more than there is, then the key waits for it, but never above ten seconds",
  () =>
    Effect.gen(function* () {
      const freeWork = yield* FreeWork
      freeWork.spend(key, 64 * 1024 * 1024)
      const { retryAfterS, value } = yield* Effect.flip(Effect.fromResult(freeWork.check(key)))
      assert.strictEqual(value, 10)
      assert.strictEqual(retryAfterS, 11)
      yield* TestClock.adjust("10 seconds")
      assert.isTrue(Result.isFailure(freeWork.check(key)))
      yield* TestClock.adjust("1 second")
      assert.isTrue(Result.isSuccess(freeWork.check(key)))
    }).pipe(Effect.provide(layer))
)

it.effect("when more keys come than have a bucket, then the one used longest ago is forgotten", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* ask(100, "first"), 20)
    yield* Effect.forEach(["a", "b", "c"], (keyId) => ask(1, keyId))
    assert.strictEqual(yield* ask(100, "first"), 20)
    assert.strictEqual(yield* ask(100, "c"), 19)
  }).pipe(Effect.provide(layer))
)

it.effect("when limits are shown without asking the store, then they are a second old at most", () =>
  Effect.gen(function* () {
    const freeWork = yield* FreeWork
    const full = { limit: 1, remaining: 1 }
    const headroom = { requests: full, tokens: full, budgets: {}, resets: noResets }
    freeWork.noteHeadroom("key", headroom)
    assert.strictEqual(freeWork.headroom("key"), headroom)
    yield* TestClock.adjust("1 second")
    assert.isUndefined(freeWork.headroom("key"), "one asker reads it anew")
    assert.strictEqual(freeWork.headroom("key"), headroom, "the others go on with what there is")
  }).pipe(Effect.provide(layer))
)

it.effect(
  "when all keys of a tenant have used as much as three may, then the others are refused as well",
  () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* ask(100, "tenant/a"), 20)
      assert.strictEqual(yield* ask(100, "tenant/b"), 20)
      assert.strictEqual(yield* ask(100, "tenant/c"), 20)
      assert.strictEqual(yield* ask(100, "tenant/d"), 0)
      assert.strictEqual(yield* ask(100, "other"), 20, "another tenant has its own")
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* ask(100, "tenant/d")) + (yield* ask(100, "tenant/e")), 30)
    }).pipe(Effect.provide(FreeWork.layer({ perSecond: 10, burst: 20 })))
)

const refusal = new FreeWorkExhausted({ value: 10, retryAfterS: 1 })

/** How long the next refusals of a key wait, ms; undefined: not at all, and the connection is closed. */
const delays = (count: number, keyId = "key") =>
  Effect.gen(function* () {
    const freeWork = yield* FreeWork
    const waits: Array<number | undefined> = []
    for (let n = 0; n < count; n += 1) {
      const delayed = yield* Effect.forkChild(freeWork.delay(keyId, refusal), { startImmediately: true })
      let ms = 0
      for (; delayed.pollUnsafe() === undefined; ms += 5) yield* TestClock.adjust("5 millis")
      waits.push((yield* Fiber.join(delayed)) ? ms : undefined)
    }
    return waits
  })

it.effect(
  "when a key is refused for the first time, then all that it had sent before are refused at once",
  () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(new Set(yield* delays(100)), new Set([0]))
      yield* TestClock.adjust("240 millis")
      assert.deepStrictEqual(yield* delays(1), [0])
    }).pipe(Effect.provide(layer))
)

it.effect(
  "when a key goes on asking although it was told to wait, then each refusal comes later, up to a second",
  () =>
    Effect.gen(function* () {
      yield* delays(1)
      yield* TestClock.adjust("250 millis")
      const [first = 0, second = 0, ...more] = yield* delays(12)
      assert.isAbove(first, 0)
      assert.isAtMost(first, 35)
      assert.isAbove(second, first)
      for (const ms of more.slice(-5)) {
        assert.isAtLeast(ms ?? 0, 750)
        assert.isAtMost(ms ?? 0, 1255)
      }
      assert.deepStrictEqual(yield* delays(1, "another"), [0], "another key is not delayed")
    }).pipe(Effect.provide(layer))
)

it.effect("when a key waits as long as it is told each time, then it is never delayed", () =>
  Effect.gen(function* () {
    for (let n = 0; n < 100; n += 1) {
      assert.deepStrictEqual(yield* delays(1), [0])
      yield* TestClock.adjust("1 second")
    }
  }).pipe(Effect.provide(layer))
)

it.effect(
  "when a key that was delayed has been quiet for ten seconds, then it is refused at once again",
  () =>
    Effect.gen(function* () {
      yield* delays(1)
      yield* TestClock.adjust("250 millis")
      yield* delays(12)
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* delays(3), [0, 0, 0])
    }).pipe(Effect.provide(layer))
)

it.effect(
  "when more refusals of a key wait than may, then the next is not answered late but closed, until one is done",
  () =>
    Effect.gen(function* () {
      const freeWork = yield* FreeWork
      yield* delays(1)
      yield* TestClock.adjust("250 millis")
      const wait = Effect.forkChild(freeWork.delay("key", refusal), { startImmediately: true })
      const waiting = yield* Effect.replicateEffect(wait, 5)
      assert.strictEqual(freeWork.waiting, 5)
      assert.isFalse(yield* freeWork.delay("key", refusal))
      yield* Effect.forEach(waiting, Fiber.interrupt)
      assert.strictEqual(freeWork.waiting, 0, "a client that leaves gives its place back")
    }).pipe(Effect.provide(layer))
)
