import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { timeoutDetached } from "../../../src/infra/time.ts"
import { layerPrivatePostgres, TestCluster } from "../../support/TestPostgres.ts"

it.effect("passes on what the work says in time", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* timeoutDetached("1 second")(Effect.succeed(7)), 7)
    assert.strictEqual(yield* Effect.flip(timeoutDetached("1 second")(Effect.fail("no"))), "no")
  })
)

it.effect("does not wait for work that cannot be stopped", () =>
  Effect.gen(function* () {
    const stubborn = Effect.uninterruptible(Effect.sleep("1 hour"))
    const waiting = yield* Effect.forkChild(Effect.flip(timeoutDetached("1 second")(stubborn)), {
      startImmediately: true
    })
    yield* TestClock.adjust("1 second")
    assert.strictEqual((yield* Fiber.join(waiting))._tag, "TimeoutError")
  })
)

it.effect("stops the work when the deadline passes, and when the caller leaves", () =>
  Effect.gen(function* () {
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
)

it.live("holds on a Postgres that is frozen", () =>
  Effect.gen(function* () {
    const cluster = yield* TestCluster
    const sql = yield* SqlClient.SqlClient
    yield* sql`SELECT 1`
    yield* cluster.pause
    const before = performance.now()
    yield* Effect.flip(timeoutDetached("300 millis")(sql`SELECT 1`))
    assert.isBelow(performance.now() - before, 1500)
    yield* cluster.resume
  }).pipe(Effect.provide(layerPrivatePostgres()))
)
