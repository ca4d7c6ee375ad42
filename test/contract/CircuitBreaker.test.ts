import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import { maxRemembered } from "../../src/backend/Circuit.ts"
import { CircuitBreaker, layerCircuitBreaker, type Verdict } from "../../src/backend/CircuitBreaker.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { BackendFailed, type CircuitOpen } from "../../src/domain/Errors.ts"
import { guarded } from "../support/guarded.ts"
import { testWith } from "../support/testWith.ts"

const broken = new BackendFailed({ fault: "cut" })
const away = new BackendFailed({ fault: "unreachable" })
const busy = new BackendFailed({ fault: "busy" })
const cut = Exit.fail(broken)

const verdictOf = ({ fault }: BackendFailed): Verdict =>
  fault === "unreachable" ? "outage" : fault === "busy" ? "ignored" : "failure"
/** `t/k` is a key of the tenant `t`; a name without a slash is a key and its tenant. */
const partyOf = (keyId: string) => {
  const [tenant = ""] = keyId.split("/")
  return { keyId, keyPrefix: `tg_${keyId}`, tenantId: tenant, tenantName: `tenant ${tenant}` }
}

const said = (error: BackendFailed | CircuitOpen): string =>
  error._tag === "CircuitOpen" ? `open ${error.retryAfterS}` : error.fault
const head = <A>(effect: Effect.Effect<A, BackendFailed>, key = "key") =>
  Effect.flatMap(CircuitBreaker, (breaker) => guarded(breaker, partyOf(key), effect, verdictOf))
const refusedOf = <A>(call: Effect.Effect<A, BackendFailed | CircuitOpen, CircuitBreaker>) =>
  Effect.map(Effect.flip(call), said)
const failOf = (key: string, error = broken) => refusedOf(head(Effect.fail(error), key))
const okOf = (key: string) => head(Effect.succeed("frame"), key)
const serve = (key: string) => Effect.flatMap(okOf(key), ({ ended }) => ended(Exit.void))
const fail = failOf("key")
const ok = okOf("key")
const state = Effect.flatMap(CircuitBreaker, (breaker) => breaker.state)
const openKeys = Effect.flatMap(CircuitBreaker, (breaker) => breaker.openKeys)
const times = <A, E, R>(n: number, effect: Effect.Effect<A, E, R>) => Effect.replicateEffect(effect, n)
const forked = <A>(effect: Effect.Effect<A, BackendFailed>, key: string) =>
  Effect.forkChild(Effect.exit(head(effect, key)), { startImmediately: true })

/** Opens the circuit for everybody. No key has failed often enough for its own. */
const openForAll = Effect.forEach(["a", "b", "a", "b", "a"], (key) => failOf(key), { discard: true })

/** Opens the circuit of the tenant `t`. None of its keys has failed often enough for its own. */
const openForTenant = Effect.forEach(["t/1", "t/2", "t/1", "t/2", "t/1"], (key) => failOf(key), {
  discard: true
})

/** The layer under test opens after 5 failures, for 30 s. */
const layer = layerCircuitBreaker({ failures: 5, openMs: 30_000 })

const test = testWith(it.effect, layer)

describe("CircuitBreaker: one key", () => {
  test("when the end of a call is reported twice, then only the first report counts", function* () {
    for (let call = 0; call < 5; call += 1) {
      const { ended } = yield* okOf("key")
      yield* ended(Exit.fail(broken))
      yield* ended(Exit.void)
    }
    assert.strictEqual(yield* openKeys, 1)
  })

  test("when five calls of a key fail in a row, then its next one is refused without a call, and others go on", function* () {
    yield* times(4, fail)
    assert.strictEqual(yield* openKeys, 0)
    yield* fail
    assert.deepStrictEqual([yield* state, yield* openKeys], ["closed", 1])
    yield* TestClock.adjust("10 seconds")
    let called = false
    assert.strictEqual(yield* refusedOf(head(Effect.sync(() => void (called = true)))), "open 20")
    assert.isFalse(called)
    // Both ways into the breaker say the same.
    const { check } = yield* CircuitBreaker
    assert.strictEqual((yield* Effect.flip(check(partyOf("key")))).retryAfterS, 20)
    yield* check(partyOf("other"))
    yield* serve("other")
  })

  test("when errors say nothing of the server, or clients leave, then nothing opens", function* () {
    yield* times(20, failOf("key", busy))
    for (let i = 0; i < 20; i += 1) yield* Fiber.interrupt(yield* forked(Effect.never, "key"))
    yield* times(20, Effect.exit(head(Effect.die(new Error("a bug")))))
    yield* serve("key")
    assert.deepStrictEqual([yield* state, yield* openKeys], ["closed", 0])
  })

  test("when all its streams break after a good head, then it opens", function* () {
    for (let i = 0; i < 5; i += 1) yield* (yield* ok).ended(cut)
    assert.strictEqual(yield* openKeys, 1)
  })

  test("when a stream ends well, then failures are counted anew, and a good head alone does not do that", function* () {
    yield* times(4, fail)
    yield* serve("key")
    yield* times(4, fail)
    assert.strictEqual(yield* openKeys, 0)
    yield* ok
    yield* fail
    assert.strictEqual(yield* openKeys, 1)
  })

  test("when it was open for 30 s, then one of fifty calls is let through, and its first frame closes it", function* () {
    yield* times(5, fail)
    yield* TestClock.adjust("29999 millis")
    assert.strictEqual(yield* refusedOf(ok), "open 1")
    yield* TestClock.adjust("1 millis")
    let calls = 0
    const slow = Effect.delay(
      Effect.sync(() => void (calls += 1)),
      "1 second"
    )
    const all = yield* Effect.forEach(Array.from({ length: 50 }), () => forked(slow, "key"))
    yield* TestClock.adjust("1 second")
    const exits = yield* Effect.forEach(all, Fiber.join)
    assert.strictEqual(exits.filter(Exit.isSuccess).length, 1)
    assert.strictEqual(calls, 1)
    yield* times(4, fail)
    assert.strictEqual(yield* openKeys, 0)
  })

  test("when a result belongs to a call from before it opened, then it does not count", function* () {
    const old = yield* times(10, ok)
    yield* times(5, fail)
    yield* TestClock.adjust("30 seconds")
    const probe = yield* forked(Effect.never, "key")
    for (const { ended } of old.slice(0, 5)) yield* ended(Exit.void)
    assert.strictEqual(yield* fail, "open 1", "the circuit is still half-open")
    yield* Fiber.interrupt(probe)
    yield* ok
    for (const { ended } of old) yield* ended(cut)
    assert.strictEqual(yield* refusedOf(head(Effect.fail(busy))), "busy")
  })

  test("when more keys fail than are remembered, then the one that was used least recently starts anew", function* () {
    yield* times(4, failOf("kept"))
    yield* serve("other")
    yield* times(4, failOf("forgotten"))
    yield* serve("other")
    for (let n = 3; n < maxRemembered; n += 1) {
      yield* failOf(`k${n}`)
      yield* serve("other")
    }
    const { check } = yield* CircuitBreaker
    yield* check(partyOf("kept"))
    yield* failOf("one more")
    yield* serve("other")
    yield* failOf("kept")
    assert.strictEqual(yield* openKeys, 1)
    yield* failOf("forgotten")
    assert.deepStrictEqual([yield* state, yield* openKeys], ["closed", 1])
  })
})

describe("CircuitBreaker: one tenant", () => {
  test("when two of its keys fail five times in a row, then all of its keys are refused, and no other tenant", function* () {
    yield* openForTenant
    assert.deepStrictEqual([yield* state, yield* openKeys], ["closed", 1])
    assert.strictEqual(yield* refusedOf(okOf("t/3")), "open 30")
    yield* serve("other")
  })

  test("when one key alone keeps failing, then other keys of its tenant go on", function* () {
    yield* times(5, failOf("t/1"))
    yield* TestClock.adjust("30 seconds")
    for (let n = 0; n < 5; n += 1) {
      assert.strictEqual(yield* failOf("t/1"), "cut")
      yield* TestClock.adjust("30 seconds")
    }
    yield* serve("t/2")
  })

  test("when keys that failed keep trying and failing, then they do not keep it open for another key", function* () {
    yield* openForTenant
    yield* TestClock.adjust("30 seconds")
    const hanging = yield* forked(Effect.never, "t/1")
    assert.strictEqual(yield* failOf("t/2"), "cut")
    yield* serve("t/3")
    assert.strictEqual(yield* openKeys, 0)
    yield* Fiber.interrupt(hanging)
  })
})

describe("CircuitBreaker: everybody", () => {
  test("when no connection can be made five times, then it opens for all, whoever asks, and for no key alone", function* () {
    yield* times(5, failOf("key", away))
    assert.deepStrictEqual([yield* state, yield* openKeys], ["open", 0])
    yield* TestClock.adjust("30 seconds")
    yield* serve("key")
    assert.strictEqual(yield* state, "closed")
  })

  test("when one of five failures of a key can have no request as its cause, then it opens for all", function* () {
    yield* times(2, fail)
    yield* failOf("key", away)
    yield* fail
    assert.strictEqual(yield* state, "closed")
    yield* fail
    assert.strictEqual(yield* state, "open")
  })

  test("when it was open for 30 s, then each key may try one call, and the first frame of one closes it for all", function* () {
    yield* openForAll
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(yield* state, "half-open")
    const frame = yield* Deferred.make<string>()
    const slow = yield* forked(Deferred.await(frame), "a")
    assert.strictEqual(yield* refusedOf(okOf("a")), "open 1")
    assert.strictEqual(yield* failOf("b"), "cut")
    assert.strictEqual(yield* refusedOf(okOf("b")), "open 30")
    assert.strictEqual(yield* state, "open", "nothing better is known")
    yield* okOf("good")
    assert.strictEqual(yield* state, "closed")
    yield* okOf("b")
    yield* Deferred.succeed(frame, "frame")
    yield* Fiber.join(slow)
  })

  test("when the client of a call that tries leaves, or it shows nothing, then its key may try again", function* () {
    yield* openForAll
    yield* TestClock.adjust("30 seconds")
    yield* Fiber.interrupt(yield* forked(Effect.never, "a"))
    assert.strictEqual(yield* failOf("a", busy), "busy")
    yield* okOf("a")
    assert.strictEqual(yield* state, "closed")
  })

  test("when a call that tries hangs, then its key is refused for a third of the open time, and its late failure does not count", function* () {
    yield* openForAll
    yield* TestClock.adjust("30 seconds")
    const late = yield* Deferred.make<string, BackendFailed>()
    const hanging = yield* forked(Deferred.await(late), "a")
    yield* TestClock.adjust("9 seconds")
    assert.strictEqual(yield* refusedOf(okOf("a")), "open 1")
    yield* TestClock.adjust("1 second")
    const next = yield* Deferred.make<string>()
    const trying = yield* forked(Deferred.await(next), "a")
    yield* Deferred.fail(late, broken)
    yield* Fiber.join(hanging)
    assert.strictEqual(yield* state, "half-open")
    yield* Deferred.succeed(next, "frame")
    yield* Fiber.join(trying)
    assert.strictEqual(yield* state, "closed")
  })

  test("when a call that tries meets an outage, then everybody is refused again for the open time", function* () {
    yield* times(5, failOf("a", away))
    yield* TestClock.adjust("30 seconds")
    yield* failOf("a", away)
    assert.strictEqual(yield* refusedOf(okOf("good")), "open 30")
  })

  test("when it opened while a call waited for its first frame, then that frame closes it", function* () {
    const frame = yield* Deferred.make<string>()
    const slow = yield* forked(Deferred.await(frame), "good")
    yield* openForAll
    assert.strictEqual(yield* state, "open")
    yield* Deferred.succeed(frame, "frame")
    yield* Fiber.join(slow)
    yield* serve("good")
  })

  test("when an outage has opened it, then a further frame of an old stream does not close it; otherwise it does", function* () {
    const old = yield* okOf("good")
    yield* times(5, failOf("a", away))
    yield* old.heard
    assert.strictEqual(yield* state, "open")
    yield* TestClock.adjust("30 seconds")
    yield* serve("a")
    yield* TestClock.adjust("30 seconds")
    yield* openForAll
    assert.strictEqual(yield* state, "open")
    yield* old.heard
    assert.strictEqual(yield* state, "closed")
  })

  test("when anybody was served within the open time, then failures of any tenants do not open it; afterwards they do", function* () {
    yield* serve("good")
    yield* Effect.forEach(["a", "b", "a", "b", "a", "b"], (key) => failOf(key), { discard: true })
    yield* TestClock.adjust("29999 millis")
    yield* failOf("c")
    assert.strictEqual(yield* state, "closed")
    yield* TestClock.adjust("1 millis")
    yield* failOf("c")
    assert.strictEqual(yield* state, "open")
  })

  test("when outages come while others are served, then it opens all the same", function* () {
    const { heard } = yield* okOf("good")
    yield* times(4, failOf("a", away))
    yield* heard
    assert.strictEqual(yield* state, "closed")
    yield* failOf("b", away)
    assert.strictEqual(yield* state, "open")
  })

  test("when a key or a tenant tries its own circuit, then its failure says nothing of others", function* () {
    yield* times(5, failOf("bad"))
    // Ends the streak for all.
    yield* serve("good")
    yield* openForTenant
    yield* serve("good")
    yield* TestClock.adjust("60 seconds")
    for (const key of ["bad", "t/1", "t/2", "t/3", "t/4"]) assert.strictEqual(yield* failOf(key), "cut")
    assert.strictEqual(yield* state, "closed")
    yield* TestClock.adjust("60 seconds")
    for (const key of ["bad", "t/1", "t/2", "t/3", "t/4"])
      assert.strictEqual(yield* failOf(key, away), "unreachable")
    assert.strictEqual(yield* state, "open", "an outage does")
  })

  test("when it opens and closes, then each is logged once, with its name, however many calls it refused", function* () {
    const lines: Array<string> = []
    const ear = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
    yield* Effect.gen(function* () {
      yield* openForAll
      yield* times(20, fail)
      yield* TestClock.adjust("30 seconds")
      yield* serve("good")
      yield* times(25, fail)
      yield* TestClock.adjust("30 seconds")
      yield* ok
      yield* openForTenant
      yield* times(20, failOf("t/3"))
      yield* TestClock.adjust("30 seconds")
      yield* serve("t/3")
    }).pipe(Effect.provide(Logger.layer([ear])))
    const messages = lines.map((line) => /"message":"([^"]*)"/.exec(line)?.[1])
    assert.deepStrictEqual(messages, [
      "circuit breaker opened",
      "circuit breaker closed",
      "circuit of a key opened",
      "circuit of a key closed",
      "circuit of a tenant opened",
      "circuit of a tenant closed"
    ])
    assert.include(lines[0], '"failures":5')
    assert.include(lines[2], '"key_prefix":"tg_key"')
    for (const line of lines.slice(4)) assert.include(line, '"tenant":"tenant t"')
  })
})
