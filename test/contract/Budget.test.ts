import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { Ledger, LedgerDown } from "../../src/gates/limits/Ledger.ts"
import type { Budgets, Period } from "../../src/domain/Limits.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { noReconciler } from "../support/noReconciler.ts"
import { layerMemory } from "../../src/gates/meter/memory/layer.ts"
import { Meter, MeterDown, Missing } from "../../src/gates/meter/Meter.ts"
import { claimsOf, noon } from "./Meter.ts"
import { testWith } from "../support/testWith.ts"

const spent = { day: 10, week: 50, month: 200, total: 3000 }
const instant = Date.UTC(2026, 10, 21)

const over = (spentOf: Ledger["Service"]["spent"]) =>
  Budget.layer.pipe(
    Layer.provide(noReconciler),
    Layer.provideMerge(layerMemory({ leaseS: 30 })),
    Layer.provideMerge(Layer.mock(Ledger, { spent: spentOf }))
  )

const budgets = { day: 1000, month: 10_000, total: 100_000 }
const missingOf = Effect.fnUntraced(function* (budgets: Budgets) {
  const missing = yield* (yield* Meter).peek(claimsOf({ budgets }))
  if (missing instanceof Missing) return missing
  return yield* Effect.die("nothing is missing")
})

it.effect("when totals are missing, then they are restored from the ledger, each from its own period", () => {
  const asked: Array<readonly [string | undefined, number]> = []
  return Effect.gen(function* () {
    yield* TestClock.setTime(noon)
    const [budget, meter] = [yield* Budget, yield* Meter]
    yield* budget.restore(claimsOf({}), yield* missingOf(budgets))
    const headroom = yield* meter.peek(claimsOf({ budgets }))
    assert.notInstanceOf(headroom, Missing)
    assert.deepInclude(headroom, {
      budgets: {
        day: { limit: 1000, remaining: 990 },
        month: { limit: 10_000, remaining: 9800 },
        total: { limit: 100_000, remaining: 97_000 }
      }
    })
    assert.deepStrictEqual(
      asked.map(([key, at]) => [key, new Date(at).toISOString().slice(0, 10)]),
      [["k", "2026-11-21"]]
    )
  }).pipe(
    Effect.provide(
      over(({ key }, at) => {
        asked.push([key, at])
        return Effect.succeed(spent)
      })
    )
  )
})

it.effect(
  "when many requests miss the same total at once, then the ledger is read once, also when the first request leaves",
  () => {
    let reads = 0
    return Effect.gen(function* () {
      yield* TestClock.setTime(noon)
      const gate = yield* Deferred.make<void>()
      const slow = over(() => {
        reads += 1
        return Effect.as(Deferred.await(gate), spent)
      })
      yield* Effect.gen(function* () {
        const budget = yield* Budget
        const missing = yield* missingOf({ total: 9 })
        const restore = budget.restore(claimsOf({}), missing)
        const first = yield* Effect.forkChild(restore, { startImmediately: true })
        const herd = yield* Effect.forEach(Array.from({ length: 50 }), () =>
          Effect.forkChild(restore, { startImmediately: true })
        )
        yield* Fiber.interrupt(first)
        yield* Deferred.succeed(gate, undefined)
        yield* Effect.forEach(herd, Fiber.join, { discard: true })
        assert.strictEqual(reads, 1)
        // Nothing is remembered: when they are missing again they are read again.
        yield* restore
        assert.strictEqual(reads, 2)
      }).pipe(Effect.provide(slow))
    })
  }
)

const test = testWith(it.effect)

test("when ledger or Meter do not answer, then nothing is decided", function* () {
  const missing = new Missing({ instant, counters: { day: "2026-11-21" } })
  const restore = Effect.flatMap(Budget, (budget) => Effect.flip(budget.restore(claimsOf({}), missing)))
  const broken = yield* restore.pipe(
    Effect.provide(over(() => Effect.fail(new LedgerDown({ cause: "connection lost" }))))
  )
  assert.deepInclude(broken, { _tag: "Unavailable", gate: "Budget", cause: "connection lost" })

  const hanging = yield* Effect.forkChild(restore.pipe(Effect.provide(over(() => Effect.never))), {
    startImmediately: true
  })
  yield* TestClock.adjust("4 seconds")
  assert.deepInclude(yield* Fiber.join(hanging), { _tag: "Unavailable", gate: "Budget" })

  const noMeter = Layer.mock(Meter, { load: () => Effect.fail(new MeterDown({ cause: "gone" })) })
  const unloaded = yield* restore.pipe(
    Effect.provide(
      Budget.layer.pipe(
        Layer.provide([noMeter, noReconciler, Layer.mock(Ledger, { spent: () => Effect.succeed(spent) })])
      )
    )
  )
  assert.deepInclude(unloaded, { _tag: "Unavailable", gate: "Budget", cause: "gone" })
})

it.effect(
  "when counters of a key and of its tenant are missing, then each is loaded for its own owner",
  () => {
    const asked: Array<readonly [group: string, key: string | undefined, longest: Period]> = []
    return Effect.gen(function* () {
      yield* TestClock.setTime(noon)
      const [budget, meter] = [yield* Budget, yield* Meter]
      const claims = { ...claimsOf({ budgets: { day: 100 } }), tenantBudgets: { day: 100, month: 1000 } }
      const missing = yield* meter.peek(claims)
      assert.deepStrictEqual(
        missing,
        new Missing({
          instant,
          counters: { day: "2026-11-21" },
          tenantCounters: { day: "2026-11-21", month: "2026-11" }
        })
      )
      if (!(missing instanceof Missing)) return
      yield* budget.restore(claimsOf({}), missing)
      assert.deepInclude(yield* meter.peek(claims), {
        budgets: { day: { limit: 100, remaining: 90 } },
        tenantBudgets: { day: { limit: 100, remaining: 80 }, month: { limit: 1000, remaining: 600 } }
      })
      assert.deepStrictEqual(asked, [
        ["g", "k", "day"],
        ["g", undefined, "month"]
      ])
    }).pipe(
      Effect.provide(
        over((owner, _at, longest) => {
          asked.push([owner.group, owner.key, longest])
          return Effect.succeed(
            owner.key === undefined ? { day: 20, week: 100, month: 400, total: 6000 } : spent
          )
        })
      )
    )
  }
)
