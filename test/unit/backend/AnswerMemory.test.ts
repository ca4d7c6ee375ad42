import { assert, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { freeBytes } from "../../../src/backend/AnswerAccount.ts"
import { AnswerMemory, maxWaitMs } from "../../../src/backend/AnswerMemory.ts"
import { heldAfter } from "../../support/youngGarbage.ts"

const mib = 1024 * 1024
const inMemory = Effect.provide(AnswerMemory.layer({ maxBytes: 16 * mib }))

/** A request of its own: its share, and its end. */
const request = Effect.gen(function* () {
  const [memory, scope] = [yield* AnswerMemory, yield* Scope.make()]
  const share = yield* Scope.provide(memory.share(undefined), scope)
  return { share, scope, end: Scope.close(scope, Exit.void) }
})

it.effect(
  "when a request asks for its share twice, then it is the same one, and it ends with its Scope",
  () =>
    Effect.gen(function* () {
      const memory = yield* AnswerMemory
      const { end, scope, share } = yield* request
      assert.strictEqual(yield* Scope.provide(memory.share(undefined), scope), share)
      yield* share.collect(freeBytes + mib)
      share.hold(100)
      assert.strictEqual(memory.bytes(), mib + 100)
      yield* end
      assert.strictEqual(memory.bytes(), 0)
    }).pipe(inMemory)
)

it.effect(
  "when there is no memory for an answer in time, then it fails as crowded, and keeps what it has until its end",
  () =>
    Effect.gen(function* () {
      const memory = yield* AnswerMemory
      const [first, second, third] = [yield* request, yield* request, yield* request]
      yield* third.share.collect(mib)
      yield* first.share.collect(7 * mib)
      yield* second.share.collect(5 * mib)
      const asking = yield* Effect.forkChild(Effect.flip(third.share.collect(2 * mib)), {
        startImmediately: true
      })
      yield* TestClock.adjust(maxWaitMs - 1)
      assert.deepStrictEqual([asking.pollUnsafe(), memory.waiting()], [undefined, 1])
      yield* TestClock.adjust(1)
      assert.deepInclude(yield* Fiber.join(asking), { _tag: "Unavailable", crowded: true, retryAfterS: 1 })
      assert.deepStrictEqual([memory.waiting(), memory.bytes()], [0, 13 * mib - 3 * freeBytes])
    }).pipe(inMemory)
)

it.effect("when what ends with a request has a defect, then its memory is given back all the same", () =>
  Effect.gen(function* () {
    const memory = yield* AnswerMemory
    const { end, share } = yield* request
    share.atEnd(() => {
      throw new Error("defect")
    })
    yield* share.collect(freeBytes + mib)
    assert.isTrue(Exit.isFailure(yield* Effect.exit(Effect.suspend(() => end))))
    assert.strictEqual(memory.bytes(), 0)
  }).pipe(inMemory)
)

it.effect("when another gives memory back meanwhile, then the answer goes on", () =>
  Effect.gen(function* () {
    const memory = yield* AnswerMemory
    const [first, second, third] = [yield* request, yield* request, yield* request]
    yield* first.share.collect(8 * mib)
    yield* second.share.collect(mib)
    const asking = yield* Effect.forkChild(third.share.collect(mib), { startImmediately: true })
    yield* TestClock.adjust(1000)
    assert.isUndefined(asking.pollUnsafe())
    yield* second.end
    yield* Fiber.join(asking)
    assert.strictEqual(memory.waiting(), 0)
  }).pipe(inMemory)
)

it.effect(
  "when a client does not read and another answer needs the memory, then its connection is cut after a second",
  () =>
    Effect.gen(function* () {
      const [unread, asks] = [yield* request, yield* request]
      let cut = 0
      unread.share.onCut(() => void (cut += 1))
      unread.share.deliver(12 * mib)
      const asking = yield* Effect.forkChild(asks.share.collect(8 * mib), { startImmediately: true })
      yield* TestClock.adjust(900)
      assert.deepStrictEqual([cut, asking.pollUnsafe()], [0, undefined])
      yield* TestClock.adjust(100)
      yield* Fiber.join(asking)
      assert.strictEqual(cut, 1)
    }).pipe(inMemory)
)

it.effect(
  "when a request has ended, then the first collection of young objects takes what it referred to",
  () =>
    Effect.gen(function* () {
      const memory = yield* AnswerMemory
      const runSync = Effect.runSyncWith(yield* Effect.context<never>())
      const runRequest = (response: Array<number>) =>
        runSync(
          Effect.scoped(
            Effect.map(memory.share(undefined), (share) => share.onCut(() => void response.fill(0)))
          )
        )
      heldAfter(1, runRequest)
      assert.isBelow(heldAfter(1, runRequest), 3)
    }).pipe(inMemory)
)
