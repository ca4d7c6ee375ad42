import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { timeoutDetached } from "../../../src/infra/time.ts"
import { makeStalledProcess } from "../../support/StalledProcess.ts"
import { layerPrivatePostgres, TestCluster } from "../../support/TestPostgres.ts"
import { atMost, makeStopwatch } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const test = testWith(it.effect)

test("when the work ends in time, then its result is passed on", function* () {
  assert.strictEqual(yield* timeoutDetached("1 second")(Effect.succeed(7)), 7)
  assert.strictEqual(yield* Effect.flip(timeoutDetached("1 second")(Effect.fail("no"))), "no")
})

test("when the work cannot be stopped, then the caller does not wait for it", function* () {
  const stubborn = Effect.uninterruptible(Effect.sleep("1 hour"))
  const waiting = yield* Effect.forkChild(Effect.flip(timeoutDetached("1 second")(stubborn)), {
    startImmediately: true
  })
  yield* TestClock.adjust("1 second")
  assert.strictEqual((yield* Fiber.join(waiting))._tag, "TimeoutError")
})

test("when the deadline passes or the caller leaves, then the work is stopped", function* () {
  let stopped = 0
  const work = Effect.never.pipe(Effect.onInterrupt(() => Effect.sync(() => stopped++)))
  const late = yield* Effect.forkChild(Effect.exit(timeoutDetached("1 second")(work)), {
    startImmediately: true
  })
  yield* TestClock.adjust("1 second")
  yield* Fiber.join(late)
  assert.strictEqual(stopped, 1)
  const left = yield* Effect.forkChild(timeoutDetached("1 second")(work), { startImmediately: true })
  yield* Fiber.interrupt(left)
  yield* Effect.yieldNow
  assert.strictEqual(stopped, 2)
})

testWith(it.live, layerPrivatePostgres())(
  "when Postgres is frozen, then a query fails in time",
  function* () {
    const cluster = yield* TestCluster
    yield* sql`SELECT 1`
    yield* cluster.pause
    const before = makeStopwatch()
    yield* Effect.flip(timeoutDetached("300 millis")(sql`SELECT 1`))
    assert.isBelow(before(), atMost(1500))
    yield* cluster.resume
  }
)

test("when this process was too busy to look before the deadline, then a result that had come in time counts", function* () {
  const { answer, on, stall } = yield* makeStalledProcess
  const work = on(timeoutDetached("200 millis")(Effect.as(answer, "there")))
  const fiber = yield* Effect.forkChild(work, { startImmediately: true })
  yield* stall(500)
  assert.strictEqual(yield* Fiber.join(fiber), "there")
})
