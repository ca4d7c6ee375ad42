/** The memory of requests: who has room, who waits, and who is cut. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { MemoryLedger, freeBytes } from "../../../src/memory/MemoryLedger.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { callerWith } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

const mib = 1024 * 1024
const maxBytes = 16 * mib
/** Requests cost nothing, so that the figures are those of bodies and answers. */
const inMemory = MemoryLedger.layer({ maxBytes, requestBytes: 0 }).pipe(Layer.provide(Metrics.layer))

const callerOf = (keyId: string, tenantId: string) => ({ ...callerWith("all"), keyId, tenantId })

/** A request of a key: its share, its end, and whether it was cut. */
const request = Effect.fnUntraced(function* (keyId: string, tenantId = keyId, expected = maxBytes) {
  const memory = yield* MemoryLedger
  let isCut = false
  const share = yield* Effect.fromResult(
    memory.share({ share: undefined }, { caller: callerOf(keyId, tenantId), cut: () => void (isCut = true) })
  )
  share.expect(expected)
  return {
    grow: share.grow,
    decode: share.decode,
    collect: (bytes: number) => share.collect(freeBytes + bytes),
    hold: (bytes: number) => share.hold(freeBytes + bytes),
    isCut: () => isCut,
    end: Effect.sync(share.close)
  }
})

const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.forkChild(effect, { startImmediately: true })

const test = testWith(it.effect, inMemory)

describe("answers that are collected", () => {
  test("when they are small, then nothing is counted", function* () {
    const memory = yield* MemoryLedger
    for (let i = 0; i < 1000; i += 1) yield* (yield* request(`key ${i}`)).collect(0)
    assert.strictEqual(memory.bytes(), 0)
  })

  test("when the keys of one tenant collect as much as they can, then another tenant's answer does not wait", function* () {
    const memory = yield* MemoryLedger
    const all = yield* Effect.forEach(Array.from({ length: 12 }), (_, i) =>
      request(`greedy ${i % 3}`, "greedy")
    )
    for (const one of all) yield* start(Effect.forEach([1, 2, 4, 8], (n) => one.collect(n * mib)))
    assert.isAbove(memory.waiting(), 0)
    const other = yield* start((yield* request("other")).collect(mib))
    assert.isDefined(other.pollUnsafe())
  })

  test("when the one that goes beyond the bounds gives its memory back, then another one goes on", function* () {
    const first = yield* request("a", "a", 20 * mib)
    yield* first.collect(12 * mib)
    yield* first.collect(0)
    first.hold(0)
    const next = yield* start((yield* request("b")).collect(12 * mib))
    yield* Effect.yieldNow
    assert.isDefined(next.pollUnsafe())
  })

  test("when many wait, then the one with the least still to come goes on first, and all get their turn", function* () {
    const memory = yield* MemoryLedger
    const order: Array<string> = []
    type One = Effect.Success<ReturnType<typeof request>>
    const answer = Effect.fnUntraced(function* (one: One, name: string, bytes: number) {
      for (let at = mib; at <= bytes; at += mib) yield* one.collect(at)
      order.push(name)
      yield* one.end
    })
    const all = yield* Effect.forEach(
      [
        ["large", 9],
        ["small", 3],
        ["middle", 6]
      ] as const,
      ([name, size]) =>
        Effect.map(request("key", "tenant", freeBytes + size * mib), (one) => [one, name, size] as const)
    )
    const hog = yield* request("key", "tenant", 20 * mib)
    yield* hog.collect(4 * mib)
    // The hog goes beyond the bounds until it ends, so that all of these wait.
    yield* hog.collect(14 * mib)
    const waiting = yield* Effect.forEach(all, ([one, name, size]) => start(answer(one, name, size * mib)))
    assert.strictEqual(memory.waiting(), 3)
    yield* hog.end
    yield* Effect.forEach(waiting, Fiber.join)
    assert.deepStrictEqual(order, ["small", "middle", "large"])
    assert.strictEqual(memory.bytes(), 0)
  })

  test("when an answer alone takes more than all may, then it fails at once, also when it is first", function* () {
    const memory = yield* MemoryLedger
    const one = yield* request("a", "a", 200 * mib)
    yield* one.collect(16 * mib)
    const failed = yield* start(Effect.flip(one.collect(16 * mib + 1)))
    assert.isDefined(failed.pollUnsafe())
    assert.deepInclude(yield* Fiber.join(failed), { _tag: "Unavailable", crowded: true })
    assert.strictEqual(memory.bytes(), 16 * mib)
  })

  test("when there is no memory in time, then the answer fails as crowded, and keeps what it has", function* () {
    const memory = yield* MemoryLedger
    const [hog, late] = [yield* request("a", "a", 20 * mib), yield* request("b", "a", 20 * mib)]
    yield* hog.collect(15 * mib)
    const asking = yield* start(Effect.flip(late.collect(2 * mib)))
    yield* TestClock.adjust("9999 millis")
    assert.deepStrictEqual([asking.pollUnsafe(), memory.waiting()], [undefined, 1])
    yield* TestClock.adjust("1 millis")
    assert.deepInclude(yield* Fiber.join(asking), { _tag: "Unavailable", crowded: true, retryAfterS: 1 })
    assert.deepStrictEqual([memory.waiting(), memory.bytes()], [0, 15 * mib])
  })
})

describe("answers that wait for their clients", () => {
  test("when those of a tenant take too much, then its slowest reader is cut, and nobody else's", function* () {
    const memory = yield* MemoryLedger
    const other = yield* request("other")
    other.hold(5 * mib)
    const [slow, reads] = [yield* request("k1", "tenant"), yield* request("k2", "tenant")]
    slow.hold(mib)
    reads.hold(2 * mib)
    yield* TestClock.adjust("10 seconds")
    // What more comes does not make a client that reads nothing a new one, and one that reads begins anew.
    slow.hold(3 * mib)
    reads.hold(mib)
    assert.deepStrictEqual([slow.isCut(), reads.isCut()], [false, false])
    reads.hold(4 * mib)
    assert.deepStrictEqual([slow.isCut(), reads.isCut(), other.isCut()], [true, false, false])
    assert.strictEqual(memory.bytes(), 9 * mib)
    // A frame may come before the one that was cut has ended. It must not push out another reader.
    slow.hold(30 * mib)
    assert.deepStrictEqual([reads.isCut(), other.isCut(), memory.bytes()], [false, false, 9 * mib])
  })

  test("when a tenant has one reader, then it is cut only when all answers take more than there is", function* () {
    const large = yield* request("a")
    large.hold(16 * mib)
    assert.isFalse(large.isCut())
    large.hold(16 * mib + 1)
    assert.isTrue(large.isCut())
  })

  test("when any number of readers is slow, then all answers take at most what there is", function* () {
    const memory = yield* MemoryLedger
    for (let i = 0; i < 500; i += 1) {
      const one = yield* Effect.option(request(`k${i % 17}`, `t${i % 7}`))
      if (one._tag === "Some") one.value.hold(1 + ((i * 37) % 64) * 50_000)
      yield* TestClock.adjust(i % 3)
      assert.isAtMost(memory.bytes(), 16 * mib)
    }
  })

  test("when a key holds too much, then it starts no further request until it holds less, and others do", function* () {
    const one = yield* request("a")
    one.hold(9 * mib)
    assert.deepInclude(yield* Effect.flip(request("a")), { _tag: "RateLimited", limit: "concurrency" })
    yield* request("b")
    one.hold(mib)
    yield* request("a")
  })
})

describe("bodies", () => {
  test("when a key takes memory, then it gets a quarter alone, and what it holds decides who is told what", function* () {
    const memory = yield* MemoryLedger
    const first = yield* request("a")
    assert.isUndefined(first.grow(4 * mib))
    assert.deepInclude(first.grow(4 * mib + 1), { _tag: "RateLimited", limit: "concurrency", retryAfterS: 1 })
    assert.strictEqual(memory.bytes(), 4 * mib)
    // Keys of one tenant share what is left for it. They hold too little to be the reason.
    for (let n = 0; n < 30; n += 1) (yield* request(`crowd ${n}`, "crowd")).grow(mib / 4)
    const late = yield* request("late", "crowd")
    assert.deepInclude(late.grow(mib), { _tag: "Unavailable", crowded: true, retryAfterS: 1 })
    assert.isUndefined((yield* request("other")).grow(mib))
    yield* first.end
    assert.isUndefined(late.grow(mib / 2))
  })

  test("when a body is decoded, then only the process must have room, and what is kept of it is shared again", function* () {
    const memory = yield* MemoryLedger
    const heavy = yield* request("a")
    assert.isUndefined(heavy.grow(mib))
    assert.isUndefined(heavy.decode(16 * mib))
    assert.deepInclude((yield* request("b")).decode(1), { _tag: "Unavailable", crowded: true })
    assert.deepInclude(heavy.grow(5 * mib), { _tag: "RateLimited" })
    assert.isUndefined(heavy.grow(2 * mib))
    assert.strictEqual(memory.bytes(), 2 * mib)
    yield* heavy.end
    assert.strictEqual(memory.bytes(), 0)
  })

  test("when strangers take memory, then they get an eighth together, and small bodies pass", function* () {
    const memory = yield* MemoryLedger
    const [first, second] = [memory.early(), memory.early()]
    assert.isUndefined(first.grow(4096 + 2 * mib))
    assert.deepInclude(second.grow(4096 + 1), { _tag: "Unavailable", crowded: true })
    assert.isUndefined(second.grow(4096))
    assert.isUndefined((yield* request("a")).grow(3 * mib))
    first.close()
    first.close()
    assert.isUndefined(second.grow(4096 + mib))
    second.close()
    assert.strictEqual(memory.bytes(), 3 * mib)
  })

  test("when any requests come, grow and end, then all take at most what there is, and nothing is left", function* () {
    const memory = yield* MemoryLedger
    const running: Array<Effect.Success<ReturnType<typeof request>>> = []
    for (let i = 0; i < 2000; i += 1) {
      const one = yield* Effect.option(request(`k${i % 13}`, `t${i % 5}`))
      if (one._tag === "Some") {
        running.push(one.value)
        const bytes = ((i * 7919) % 97) * 20_000
        if (one.value.grow(bytes) === undefined && one.value.decode(8 * bytes) === undefined)
          one.value.grow(bytes)
        if (i % 3 === 0) one.value.hold(bytes / 2)
      }
      if (i % 7 > 3) yield* running.splice((i * 31) % running.length, 1)[0]?.end ?? Effect.void
      assert.isAtMost(memory.bytes(), maxBytes)
    }
    yield* Effect.forEach(running, ({ end }) => end)
    assert.strictEqual(memory.bytes(), 0)
  })
})
