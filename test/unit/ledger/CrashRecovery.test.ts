/** When an expired lease means that its process died: not while it is the clock, the database or this process that stood still. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Clock, Duration, Effect, Layer } from "effect"
import { noReconciler } from "../../support/noReconciler.ts"
import { layerCrashRecovery } from "../../../src/ledger/CrashRecovery.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { another } from "../../support/anotherAudit.ts"
import { hasIntent } from "../../support/auditDatabase.ts"
import { queuedFor } from "../../support/permits.ts"
import { intentOf } from "../../support/records.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { comesTrue, eventually } from "../../support/wait.ts"
import { inWorld } from "../../support/testWith.ts"

const [leaseS, everyS] = [30, 0.7]
/** One round, whatever its jitter. */
const roundMs = 1.2 * everyS * 1000
/** The time of one heartbeat, after which a lease that has expired is trusted. */
const graceRounds = Math.ceil((leaseS * 1000) / 3 / roundMs)

/** A clock that a test moves: whoever sleeps wakes when the move is over, as in a process that was paused. */
class HandClock implements Clock.Clock {
  nowMs = 1e12
  readonly #sleepers = new Set<{ readonly dueMs: number; readonly wake: () => void }>()
  readonly currentTimeMillisUnsafe = () => this.nowMs
  readonly currentTimeMillis = Effect.sync(() => this.nowMs)
  readonly currentTimeNanosUnsafe = () => BigInt(Math.round(this.nowMs * 1e6))
  readonly currentTimeNanos = Effect.sync(this.currentTimeNanosUnsafe)
  readonly monotonicTimeNanosUnsafe = this.currentTimeNanosUnsafe
  readonly monotonicTimeNanos = this.currentTimeNanos
  sleep(duration: Duration.Duration): Effect.Effect<void> {
    return Effect.callback((resume) => {
      const sleeper = {
        dueMs: this.nowMs + Duration.toMillis(duration),
        wake: () => resume(Effect.void)
      }
      this.#sleepers.add(sleeper)
      return Effect.sync(() => void this.#sleepers.delete(sleeper))
    })
  }
  /** Whether somebody sleeps for less than a second: the pause between two rounds. Statements have longer timeouts. */
  get rests(): boolean {
    return [...this.#sleepers].some(({ dueMs }) => dueMs - this.nowMs < 1000)
  }
  move(ms: number): void {
    this.nowMs += ms
    for (const sleeper of this.#sleepers) {
      if (sleeper.dueMs > this.nowMs) continue
      this.#sleepers.delete(sleeper)
      sleeper.wake()
    }
  }
}

/** Crash recovery whose own clock and whose database's clock are in the test's hand. */
const recovery = Effect.gen(function* () {
  const clock = new HandClock()
  const database = { aheadMs: 0, fails: false }
  let rounds = 0
  const pg = new Proxy(yield* PgClient.PgClient, {
    apply: (target, self, args) => {
      if (!String(args[0]).includes("clock_timestamp")) return Reflect.apply(target, self, args)
      return Effect.suspend(() => {
        rounds += 1
        return database.fails
          ? Effect.fail("down")
          : Effect.succeed([{ at: clock.nowMs + database.aheadMs, stuck: 0 }])
      })
    }
  })
  yield* Layer.build(
    layerCrashRecovery({ leaseS, everyS }).pipe(
      Layer.provide([Layer.succeed(PgClient.PgClient, pg), noReconciler, Metrics.layer])
    )
  ).pipe(Effect.provideService(Clock.Clock, clock))
  const rest = Effect.map(
    comesTrue(() => clock.rests),
    (rests) => assert.isTrue(rests)
  )
  const passes = Effect.fnUntraced(function* (count: number) {
    yield* rest
    for (let n = 0; n < count; n += 1) {
      const before = rounds
      clock.move(roundMs)
      assert.isTrue(yield* comesTrue(() => rounds > before))
      yield* rest
    }
  })
  return { clock, database, passes }
})

/** A request whose lease has expired. */
const expired = Effect.gen(function* () {
  const intent = intentOf()
  yield* Effect.scoped(
    Effect.flatMap(another({ leaseS, drainMs: 0 }), (audit) => audit.open(queuedFor(intent)))
  )
  const pg = yield* PgClient.PgClient
  const id = intent.arrival.requestId
  yield* pg`UPDATE intents SET lease_until = now() - interval '1 second' WHERE request_id = ${id}::text::uuid`
  return id
})

type Recovery = Effect.Success<typeof recovery>

const disturbances: Readonly<Record<string, (recovery: Recovery) => Effect.Effect<unknown>>> = {
  "this process was paused": ({ clock }) => Effect.sync(() => void (clock.nowMs += leaseS * 1000)),
  "the database's clock was set forward": ({ database }) =>
    Effect.sync(() => void (database.aheadMs += leaseS * 1000)),
  "the database's clock was set back": ({ database }) =>
    Effect.sync(() => void (database.aheadMs -= leaseS * 1000)),
  "the database did not answer": ({ database, passes }) =>
    Effect.gen(function* () {
      database.fails = true
      yield* passes(2)
      database.fails = false
    })
}

inWorld(TestPostgres)("crash recovery", (test) => {
  for (const [what, disturb] of Object.entries(disturbances))
    test(`when ${what}, then an expired lease means nothing until each process had time for a heartbeat`, function* () {
      const one = yield* recovery
      const first = yield* expired
      yield* one.passes(graceRounds - 1)
      assert.isTrue(yield* hasIntent(first), "it has only just begun to look")
      yield* one.passes(2)
      assert.isFalse(yield* eventually(hasIntent(first), (open) => !open))

      const second = yield* expired
      yield* disturb(one)
      yield* one.passes(graceRounds - 1)
      assert.isTrue(yield* hasIntent(second))
      yield* one.passes(2)
      assert.isFalse(yield* eventually(hasIntent(second), (open) => !open))
    })
})
