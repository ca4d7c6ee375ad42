import { assert, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { TestClock } from "effect/testing"
import { FreeWork } from "../../../src/http/FreeWork.ts"

const layer = FreeWork.layer({ perSecond: 10, burst: 20, keys: 3 })

/** How many of `count` requests that cost nothing but themselves were let in. */
const ask = (count: number, keyId = "key", bodyBytes = 0) =>
  Effect.gen(function* () {
    const freeWork = yield* FreeWork
    let passed = 0
    for (let n = 0; n < count; n += 1) {
      if (Result.isFailure(yield* Effect.result(freeWork.check(keyId)))) continue
      passed += 1
      freeWork.spend(keyId, bodyBytes)
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
      freeWork.spend("key", 64 * 1024 * 1024)
      const { retryAfterS, value } = yield* Effect.flip(freeWork.check("key"))
      assert.strictEqual(value, 10)
      assert.strictEqual(retryAfterS, 11)
      yield* TestClock.adjust("10 seconds")
      assert.isTrue(Result.isFailure(yield* Effect.result(freeWork.check("key"))))
      yield* TestClock.adjust("1 second")
      yield* freeWork.check("key")
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

it.effect("the limits that are shown without asking the store are a second old at most", () =>
  Effect.gen(function* () {
    const freeWork = yield* FreeWork
    const headroom = { requests: { limit: 1, remaining: 1 }, tokens: { limit: 1, remaining: 1 }, budgets: {} }
    freeWork.noteHeadroom("key", headroom)
    assert.strictEqual(freeWork.headroom("key"), headroom)
    yield* TestClock.adjust("1 second")
    assert.isUndefined(freeWork.headroom("key"), "one asker reads it anew")
    assert.strictEqual(freeWork.headroom("key"), headroom, "the others go on with what there is")
  }).pipe(Effect.provide(layer))
)
