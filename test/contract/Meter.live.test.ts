import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import type { MeterOptions } from "../../src/gates/meter/bounds.ts"
import { makeRedis } from "../../src/gates/meter/redis/RedisMeter.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { layerMeterOnClock } from "../support/TestMeter.ts"
import { claimsOf, granted, leaseS, noon, Wipe } from "./Meter.ts"
import { properties } from "./MeterProperty.ts"
import { suites } from "./MeterSuites.ts"
import { testWith } from "../support/testWith.ts"

const wipe = Layer.effect(
  Wipe,
  Effect.map(Redis, ({ send }) => Effect.orDie(Effect.asVoid(send("FLUSHDB", []))))
)

const twinWith = (options: Partial<MeterOptions>) => () =>
  Layer.provideMerge(wipe, layerMeterOnClock({ leaseS, ...options }))

suites("Meter in Redis", twinWith)
properties("Meter in Redis", twinWith({}), { runs: 150 })

const test = testWith(it.effect, layerMeterOnClock({ leaseS }))

test("when the host's clock is wrong, then the store's clock decides which day it is", function* () {
  yield* TestClock.setTime(noon)
  const clock = yield* Clock.Clock
  const ahead = () => clock.currentTimeMillisUnsafe() + 40 * 86_400_000
  const meter = yield* makeRedis(yield* Redis, { leaseS }, ahead)
  const claims = claimsOf({ budgets: { day: 100, month: 100 } })
  const missing = yield* meter.peek(claims)
  assert.deepInclude(missing, { counters: { day: "2026-12-31", month: "2026-12" } })
  yield* meter.load(claims.account, [
    { counter: "2026-12-31", tokens: 0 },
    { counter: "2026-12", tokens: 50 }
  ])
  const { reservation } = granted(yield* meter.reserve(claims, { id: "a", tokens: 60, slot: true }))
  assert.strictEqual(reservation.held, 50)
  assert.strictEqual((yield* meter.settle(reservation, 20)).budgets.day?.remaining, 80)
  yield* meter.reserve(claims, { id: "b", tokens: 30, slot: true })
  yield* meter.cancel({ id: "b", claims })
  assert.deepInclude(yield* meter.peek(claims), {
    budgets: { day: { limit: 100, remaining: 80 }, month: { limit: 100, remaining: 30 } }
  })
})
