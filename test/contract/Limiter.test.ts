import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Headroom } from "../../src/domain/Limits.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { layerFromMeter } from "../../src/gates/limits/limiterFromMeter.ts"
import { type ClaimName, Missing, Refused, Reserved } from "../../src/gates/meter/Meter.ts"
import { claimsOf } from "./Meter.ts"

const headroom: Headroom = {
  requests: { limit: 60, remaining: 1 },
  tokens: { limit: 100, remaining: 2 },
  budgets: {}
}
const refusedBy = (by: ClaimName) => new Refused({ by, limit: 7, retryAfterS: 11, headroom })

const caller: Caller = {
  tenantId: "t",
  tenantName: "tenant",
  keyId: "k",
  keyPrefix: "tg_000000000",
  scopes: new Set(),
  limits: { rpm: 1, tpm: 2, concurrent: 3 },
  budgets: {},
  models: "all",
  weight: 1,
  priority: "interactive"
}

it.effect("the limits of a caller are those the key store resolved", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual((yield* Limiter).limits(caller), caller.limits)
  }).pipe(Effect.provide(layerFromMeter))
)

it.effect("a refused rate or slot is the Limiter's error, with the figures of the verdict", () =>
  Effect.gen(function* () {
    const limiter = yield* Limiter
    for (const limit of ["requests", "tokens", "concurrency"] as const) {
      const error = yield* Effect.flip(limiter.judge(refusedBy(limit)))
      assert.strictEqual(error._tag, "RateLimited")
      assert.deepInclude(error, { limit, value: 7, retryAfterS: 11, headroom })
    }
  }).pipe(Effect.provide(layerFromMeter))
)

it.effect("a reservation, or a refusal that only the budget has to answer for, is evidence of room", () =>
  Effect.gen(function* () {
    const limiter = yield* Limiter
    const reservation = {
      id: "a",
      claims: claimsOf({}),
      held: 0,
      available: 0,
      admittedAt: 0,
      buckets: {},
      slot: true
    }
    for (const verdict of [new Reserved({ reservation, headroom }), refusedBy("day"), refusedBy("total")]) {
      const evidence = yield* limiter.judge(verdict)
      assert.deepStrictEqual([evidence.gate, evidence.value], ["Limiter", headroom])
    }
  }).pipe(Effect.provide(layerFromMeter))
)

it.effect("a verdict that is still missing counters decides nothing", () =>
  Effect.gen(function* () {
    const error = yield* Effect.flip((yield* Limiter).judge(new Missing({ buckets: { day: "2026-11-21" } })))
    assert.deepInclude(error, { _tag: "Unavailable", gate: "Limiter" })
  }).pipe(Effect.provide(layerFromMeter))
)
