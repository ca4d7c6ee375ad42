import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { noResets } from "../../../src/domain/Limits.ts"
import { FreeWork } from "../../../src/http/FreeWork.ts"
import { testWith } from "../../support/testWith.ts"

const layer = FreeWork.layer({ perSecond: 10, burst: 20, keys: 3, maxWaiting: 5 })

/** "tenant/key"; a name alone is a tenant with one key. */
const spenderOf = (name: string) => ({ keyId: name, tenantId: name.split("/")[0] ?? name })
const key = spenderOf("key")

/** How many of `count` requests that cost nothing but themselves were let in. */
const ask = Effect.fnUntraced(function* (count: number, keyId = "key", bodyBytes = 0) {
  const freeWork = yield* FreeWork
  let passed = 0
  for (let n = 0; n < count; n += 1) {
    if (Result.isFailure(freeWork.check(spenderOf(keyId)))) continue
    passed += 1
    freeWork.spend(spenderOf(keyId), bodyBytes)
  }
  return passed
})

const test = testWith(it.effect, layer)

test("when a key has used its burst, then it is refused until the second brings it more", function* () {
  assert.strictEqual(yield* ask(100), 20)
  yield* TestClock.adjust("500 millis")
  assert.strictEqual(yield* ask(100), 5)
  yield* TestClock.adjust("10 seconds")
  assert.strictEqual(yield* ask(100), 20, "never more than the burst")
  assert.strictEqual(yield* ask(100, "another"), 20, "another key has its own")
})

test("when bodies were read for refusals, then each 16 KiB counts as one refusal more", function* () {
  assert.strictEqual(yield* ask(100, "key", 9 * 16_384), 2)
  yield* TestClock.adjust("1 second")
  assert.strictEqual(yield* ask(100, "key", 9 * 16_384), 1)
})

test("when a refusal cost more than there is, then the key waits for it, but never above ten seconds", function* () {
  const freeWork = yield* FreeWork
  freeWork.spend(key, 64 * 1024 * 1024)
  const { retryAfterS, value } = yield* Effect.flip(Effect.fromResult(freeWork.check(key)))
  assert.strictEqual(value, 10)
  assert.strictEqual(retryAfterS, 11)
  yield* TestClock.adjust("10 seconds")
  assert.isTrue(Result.isFailure(freeWork.check(key)))
  yield* TestClock.adjust("1 second")
  assert.isTrue(Result.isSuccess(freeWork.check(key)))
})

test("when limits are shown without asking the store, then they are a second old at most", function* () {
  const freeWork = yield* FreeWork
  const full = { limit: 1, remaining: 1 }
  const headroom = { requests: full, tokens: full, budgets: {}, resets: noResets }
  freeWork.noteHeadroom("key", headroom)
  assert.strictEqual(freeWork.headroom("key"), headroom)
  yield* TestClock.adjust("1 second")
  assert.isUndefined(freeWork.headroom("key"), "one asker reads it anew")
  assert.strictEqual(freeWork.headroom("key"), headroom, "the others go on with what there is")
})

testWith(it.effect, FreeWork.layer({ perSecond: 10, burst: 20 }))(
  "when all keys of a tenant have used as much as three may, then the others are refused as well",
  function* () {
    assert.strictEqual(yield* ask(100, "tenant/a"), 20)
    assert.strictEqual(yield* ask(100, "tenant/b"), 20)
    assert.strictEqual(yield* ask(100, "tenant/c"), 20)
    assert.strictEqual(yield* ask(100, "tenant/d"), 0)
    assert.strictEqual(yield* ask(100, "other"), 20, "another tenant has its own")
    yield* TestClock.adjust("1 second")
    assert.strictEqual((yield* ask(100, "tenant/d")) + (yield* ask(100, "tenant/e")), 30)
  }
)

test("when a refusal is delayed, then by a second, and when more of a key wait than may, then the next is closed", function* () {
  const freeWork = yield* FreeWork
  const wait = Effect.forkChild(freeWork.delay("key"), { startImmediately: true })
  const waiting = yield* Effect.replicateEffect(wait, 5)
  assert.strictEqual(freeWork.waiting, 5)
  assert.isFalse(yield* freeWork.delay("key"))
  const other = yield* Effect.forkChild(freeWork.delay("another"), { startImmediately: true })
  assert.strictEqual(freeWork.waiting, 6, "another key has its own")
  yield* Fiber.interrupt(other)
  const [first, ...others] = waiting
  if (first !== undefined) yield* Fiber.interrupt(first)
  assert.strictEqual(freeWork.waiting, 4, "a client that leaves gives its place back")
  yield* TestClock.adjust("999 millis")
  assert.isTrue(others.every((fiber) => fiber.pollUnsafe() === undefined))
  yield* TestClock.adjust("1 millis")
  for (const fiber of others) assert.isTrue(yield* Fiber.join(fiber))
  assert.strictEqual(freeWork.waiting, 0)
})
