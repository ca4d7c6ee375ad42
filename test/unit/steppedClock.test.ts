/** Nothing that is measured changes when the wall clock is set. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { layerMemory as layerBackend } from "../../src/backend/memory.ts"
import { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"
import { layerFromMeter as layerBudget } from "../../src/gates/limits/budgetFromMeter.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { layerMemory as layerKeys } from "../../src/gates/keys/memory.ts"
import { Missing } from "../../src/gates/meter/Meter.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { layerMemory as layerModels } from "../../src/gates/models/memory.ts"
import { Readiness } from "../../src/http/health.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { OutageLog } from "../../src/infra/OutageLog.ts"
import { makeMonotonicMs } from "../../src/infra/time.ts"
import { onWallClock, WallClock } from "../support/SteppedClock.ts"

const hourMs = 3_600_000
const steps = [-hourMs, hourMs]
const name = (what: string, stepMs: number) =>
  `when the wall clock is set by ${stepMs / hourMs} h, then ${what}`

const stepped = Effect.fnUntraced(function* (ms: number) {
  yield* (yield* WallClock).step(ms)
})
const here = <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.flatMap(WallClock, ({ on }) => on(work))

for (const stepMs of steps) {
  it.effect(name("an open circuit lets a probe through after its time, and not before", stepMs), () =>
    Effect.gen(function* () {
      const breaker = yield* CircuitBreaker
      const state = here(breaker.state)
      yield* here(
        Effect.ignore(
          breaker.guard({ keyId: "key", keyPrefix: "tg_key" }, Effect.fail("down"), () => "outage")
        )
      )
      yield* TestClock.adjust("10 seconds")
      yield* stepped(stepMs)
      yield* TestClock.adjust("19 seconds")
      assert.strictEqual(yield* state, "open")
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* state, "half-open")
    }).pipe(
      Effect.provide(
        onWallClock(layerCircuitBreaker({ failures: 1, openMs: 30_000 })).pipe(
          Layer.provideMerge(WallClock.layer)
        )
      )
    )
  )

  it.effect(
    name("counters that are missing are read from the ledger, whatever was read before", stepMs),
    () => {
      let reads = 0
      const ledger = Layer.succeed(Ledger, {
        spent: () =>
          Effect.sync(() => {
            reads += 1
            return { day: 1, month: 1, total: 1 }
          })
      })
      return Effect.gen(function* () {
        const budget = yield* Budget
        const restore = here(
          budget.restore({ group: "1", key: "1" }, new Missing({ counters: { total: "total" } }))
        )
        yield* restore
        yield* stepped(stepMs)
        yield* TestClock.adjust("1 second")
        yield* restore
        assert.strictEqual(reads, 2)
      }).pipe(
        Effect.provide(
          onWallClock(layerBudget).pipe(
            Layer.provide([ledger, layerMeter({ leaseS: 30 }), Reconciler.layerNone]),
            Layer.provideMerge(WallClock.layer)
          )
        )
      )
    }
  )

  it.effect(name("readiness is asked anew after a second", stepMs), () => {
    let pings = 0
    const keys = Layer.effect(
      KeyStore,
      Effect.map(KeyStore, (store) => ({ ...store, ping: Effect.sync(() => void (pings += 1)) }))
    ).pipe(Layer.provide(layerKeys()))
    const backend = Layer.effect(
      Backend,
      Effect.map(Backend, (backend) => ({ ...backend, ping: Effect.void }))
    ).pipe(
      Layer.provide(
        layerBackend({ models: Effect.succeed([]), reply: () => new BackendFailed({ fault: "unreachable" }) })
      ),
      Layer.provide([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer])
    )
    return Effect.gen(function* () {
      const readiness = yield* Readiness
      yield* here(readiness.check)
      yield* stepped(stepMs)
      yield* TestClock.adjust("900 millis")
      yield* here(readiness.check)
      assert.strictEqual(pings, 1)
      yield* TestClock.adjust("100 millis")
      yield* here(readiness.check)
      assert.strictEqual(pings, 2)
    }).pipe(
      Effect.provide(
        onWallClock(Readiness.layer).pipe(
          Layer.provide([
            keys,
            layerMeter({ leaseS: 30 }),
            layerModels([]),
            backend,
            Drain.layer,
            Metrics.layer
          ]),
          Layer.provideMerge(WallClock.layer)
        )
      )
    )
  })

  it.effect(name("an outage is logged again after its time, and not before", stepMs), () =>
    Effect.gen(function* () {
      const log = new OutageLog(yield* here(makeMonotonicMs), { remindMs: 10_000 })
      const lines: Array<number> = []
      const failed = log.failed((failures) => Effect.sync(() => void lines.push(failures)))
      yield* failed
      yield* stepped(stepMs)
      yield* TestClock.adjust("9 seconds")
      yield* failed
      yield* TestClock.adjust("1 second")
      yield* failed
      assert.deepStrictEqual(lines, [1, 2])
    }).pipe(Effect.provide(WallClock.layer))
  )
}
