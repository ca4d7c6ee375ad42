/** The memory of answers: who has room, who waits, and who is cut. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Result, Scope } from "effect"
import { TestClock } from "effect/testing"
import { AnswerMemory, freeBytes } from "../../../src/backend/AnswerMemory.ts"
import { callerWith } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

const mib = 1024 * 1024
const inMemory = AnswerMemory.layer({ maxBytes: 16 * mib })

const callerOf = (keyId: string, tenantId: string) => ({ ...callerWith("all"), keyId, tenantId })

/** A request of a key: its share, its end, and whether it was cut. */
const request = Effect.fnUntraced(function* (keyId: string, tenantId = keyId, maxBytes = 16 * mib) {
  const [memory, scope] = [yield* AnswerMemory, yield* Scope.make()]
  const state = { isCut: false }
  const cut = Effect.sync(() => void (state.isCut = true))
  const share = yield* Scope.provide(
    memory.share({ caller: callerOf(keyId, tenantId), maxBytes, cut }),
    scope
  )
  return {
    collect: (bytes: number) => share.collect(freeBytes + bytes),
    hold: (bytes: number) => share.hold(freeBytes + bytes),
    isCut: () => state.isCut,
    end: Scope.close(scope, Exit.void)
  }
})

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(effect, { startImmediately: true })

const test = testWith(it.effect, inMemory)

describe("answers that are collected", () => {
  test("when they are small, then nothing is counted", function* () {
    const memory = yield* AnswerMemory
    for (let i = 0; i < 1000; i += 1) yield* (yield* request(`key ${i}`)).collect(0)
    assert.strictEqual(yield* memory.bytes, 0)
  })

  test("when the keys of one tenant collect as much as they can, then another tenant's answer does not wait", function* () {
    const memory = yield* AnswerMemory
    for (let i = 0; i < 12; i += 1) {
      const one = yield* request(`greedy ${i % 3}`, "greedy")
      yield* start(Effect.forEach([1, 2, 4, 8], (n) => one.collect(n * mib)))
    }
    assert.isAbove(yield* memory.waiting, 0)
    const other = yield* start((yield* request("other")).collect(mib))
    assert.isDefined(other.pollUnsafe())
  })

  test("when the one that goes beyond the bounds gives its memory back, then another one goes on", function* () {
    const first = yield* request("a", "a", 20 * mib)
    yield* first.collect(12 * mib)
    yield* first.collect(0)
    yield* first.hold(0)
    const next = yield* start((yield* request("b")).collect(12 * mib))
    yield* Effect.yieldNow
    assert.isDefined(next.pollUnsafe())
  })

  test("when many wait, then the one with the least still to come goes on first, and all get their turn", function* () {
    const memory = yield* AnswerMemory
    const order: Array<string> = []
    const answer = Effect.fnUntraced(function* (name: string, bytes: number) {
      const one = yield* request("key", "tenant", freeBytes + bytes)
      for (let at = mib; at <= bytes; at += mib) yield* one.collect(at)
      order.push(name)
      yield* one.end
    })
    const hog = yield* request("key", "tenant", 20 * mib)
    yield* hog.collect(4 * mib)
    // The hog goes beyond the bounds until it ends, so that all of these wait.
    yield* hog.collect(14 * mib)
    const waiting = yield* Effect.forEach(
      [
        ["large", 9],
        ["small", 3],
        ["middle", 6]
      ] as const,
      ([name, size]) => start(answer(name, size * mib))
    )
    assert.strictEqual(yield* memory.waiting, 3)
    yield* hog.end
    yield* Effect.forEach(waiting, Fiber.join)
    assert.deepStrictEqual(order, ["small", "middle", "large"])
    assert.strictEqual(yield* memory.bytes, 0)
  })

  test("when an answer alone takes more than all may, then it fails at once, also when it is first", function* () {
    const memory = yield* AnswerMemory
    const one = yield* request("a", "a", 200 * mib)
    yield* one.collect(16 * mib)
    const failed = yield* start(Effect.flip(one.collect(16 * mib + 1)))
    assert.isDefined(failed.pollUnsafe())
    assert.deepInclude(yield* Fiber.join(failed), { _tag: "Unavailable", crowded: true })
    assert.strictEqual(yield* memory.bytes, 16 * mib)
  })

  test("when there is no memory in time, then the answer fails as crowded, and keeps what it has", function* () {
    const memory = yield* AnswerMemory
    const [hog, late] = [yield* request("a", "a", 20 * mib), yield* request("b", "a", 20 * mib)]
    yield* hog.collect(15 * mib)
    const asking = yield* start(Effect.flip(late.collect(2 * mib)))
    yield* TestClock.adjust("9999 millis")
    assert.deepStrictEqual([asking.pollUnsafe(), yield* memory.waiting], [undefined, 1])
    yield* TestClock.adjust("1 millis")
    assert.deepInclude(yield* Fiber.join(asking), { _tag: "Unavailable", crowded: true, retryAfterS: 1 })
    assert.deepStrictEqual([yield* memory.waiting, yield* memory.bytes], [0, 15 * mib])
  })
})

describe("answers that wait for their clients", () => {
  test("when those of a tenant take too much, then its slowest reader is cut, and nobody else's", function* () {
    const memory = yield* AnswerMemory
    const other = yield* request("other")
    yield* other.hold(5 * mib)
    const [slow, reads] = [yield* request("k1", "tenant"), yield* request("k2", "tenant")]
    yield* slow.hold(mib)
    yield* reads.hold(2 * mib)
    yield* TestClock.adjust("10 seconds")
    // What more comes does not make a client that reads nothing a new one, and one that reads begins anew.
    yield* slow.hold(3 * mib)
    yield* reads.hold(mib)
    assert.deepStrictEqual([slow.isCut(), reads.isCut()], [false, false])
    yield* reads.hold(4 * mib)
    assert.deepStrictEqual([slow.isCut(), reads.isCut(), other.isCut()], [true, false, false])
    assert.deepStrictEqual([yield* memory.cuts, yield* memory.bytes], [1, 9 * mib])
  })

  test("when a tenant has one reader, then it is cut only when all answers take more than there is", function* () {
    const large = yield* request("a")
    yield* large.hold(16 * mib)
    assert.isFalse(large.isCut())
    yield* large.hold(16 * mib + 1)
    assert.isTrue(large.isCut())
  })

  test("when any number of readers is slow, then all answers take at most what there is", function* () {
    const memory = yield* AnswerMemory
    for (let i = 0; i < 500; i += 1) {
      const one = yield* request(`k${i % 17}`, `t${i % 7}`)
      yield* one.hold(1 + ((i * 37) % 64) * 50_000)
      yield* TestClock.adjust(i % 3)
      assert.isAtMost(yield* memory.bytes, 16 * mib)
    }
  })

  test("when a key holds too much unread, then it starts no further request until some is read", function* () {
    const memory = yield* AnswerMemory
    const isFree = (keyId: string) =>
      Effect.map(Effect.result(memory.checkRoom(callerOf(keyId, keyId))), Result.isSuccess)
    const one = yield* request("a")
    yield* one.hold(9 * mib)
    assert.deepStrictEqual([yield* isFree("a"), yield* isFree("b")], [false, true])
    yield* one.hold(mib)
    assert.isTrue(yield* isFree("a"))
    yield* one.hold(0)
    yield* (yield* request("a")).collect(9 * mib)
    assert.isTrue(yield* isFree("a"), "what is collected is not unread")
  })
})
