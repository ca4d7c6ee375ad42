import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { type Headroom, noResets } from "../../src/domain/Limits.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { layerFromMeter } from "../../src/gates/limits/limiterFromMeter.ts"
import { ModelRates } from "../../src/gates/limits/TokenRates.ts"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import {
  type ClaimName,
  Meter,
  MeterDown,
  Missing,
  Refused,
  Reserved,
  type Verdict
} from "../../src/gates/meter/Meter.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { seal } from "../../src/domain/Evidence.ts"
import { askedOf, callerWith, modelNamed, verified } from "../support/permits.ts"
import { claimsOf } from "./Meter.ts"

const headroom: Headroom = {
  requests: { limit: 60, remaining: 1 },
  tokens: { limit: 100, remaining: 2 },
  budgets: {},
  resets: noResets
}
const refusedBy = (by: ClaimName) =>
  new Refused({ by, scope: "key", limit: 7, isSpent: true, retryAfterS: 11, headroom })
const reservation = {
  id: "a",
  claims: claimsOf({}),
  held: 50,
  available: 60,
  admittedAt: 0,
  slot: true
}
const caller = { ...callerWith("all"), limits: { rpm: 1, tpm: 2, concurrent: 3 }, budgets: { day: 4 } }
const model = seal.Discovery(verified(caller), { ...askedOf(), model: modelNamed("m") })

/** The Limiter on a Meter that answers `verdict`, and what the Meter was asked. */
const answering = (verdict: Verdict) => {
  const asked: Array<Claims> = []
  const meter = Layer.mock(Meter, {
    reserve: (claims) =>
      Effect.sync(() => {
        asked.push(claims)
        return verdict
      })
  })
  const budget = Layer.succeed(Budget, { restore: () => Effect.void })
  const layer = layerFromMeter.pipe(
    Layer.provide([meter, budget, ModelRates.layer, Reconciler.layerNone]),
    Layer.provide(SettlementQueue.layer({ drainMs: 0 })),
    Layer.provide(Metrics.layer)
  )
  const reserve = Effect.flatMap(Limiter, (limiter) => limiter.reserve(model)).pipe(Effect.provide(layer))
  return { asked, layer, reserve }
}

it.effect("when a request is reserved, then its claims are the limits and budgets of its caller", () =>
  Effect.gen(function* () {
    const { asked, reserve } = answering(new Reserved({ reservation, headroom }))
    yield* reserve
    assert.deepStrictEqual(asked, [
      {
        account: { group: caller.tenantId, key: caller.keyId },
        limits: caller.limits,
        budgets: { day: 4 },
        tenantBudgets: {}
      }
    ])
  })
)

it.effect(
  "when a rate or a slot is refused, then the error is the Limiter's, with the figures of the verdict",
  () =>
    Effect.gen(function* () {
      for (const limit of ["requests", "tokens", "concurrency"] as const) {
        const error = yield* Effect.flip(answering(refusedBy(limit)).reserve)
        assert.deepInclude(error, { _tag: "RateLimited", limit, value: 7, retryAfterS: 11, headroom })
      }
    })
)

it.effect("when a period is spent, then the error is the Budget's, with the figures of the verdict", () =>
  Effect.gen(function* () {
    for (const period of ["day", "month", "total"] as const) {
      const error = yield* Effect.flip(answering(refusedBy(period)).reserve)
      assert.deepInclude(error, { _tag: "BudgetExhausted", period, value: 7, retryAfterS: 11, headroom })
    }
  })
)

it.effect("when a request is reserved, then the reservation is the evidence, and the call fits in it", () =>
  Effect.gen(function* () {
    const evidence = yield* answering(new Reserved({ reservation, headroom })).reserve
    assert.strictEqual(evidence.link, "Limiter")
    assert.deepInclude(evidence.facts, { reservation, headroom, caller })
    assert.strictEqual(evidence.facts.call.maxTokens, 59)
  })
)

it.effect("when totals are missing after they were restored, then nothing is decided", () =>
  Effect.gen(function* () {
    const { asked, reserve } = answering(new Missing({ counters: { day: "2026-11-21" } }))
    assert.deepInclude(yield* Effect.flip(reserve), { _tag: "Unavailable", gate: "Budget" })
    assert.lengthOf(asked, 2)
  })
)

/** Reserves once, and returns the ids of the reservations that are cancelled afterwards, and the accounts that are compared. */
const afterwards = Effect.fnUntraced(function* (
  flush: Effect.Effect<void, MeterDown>,
  verdict: Effect.Effect<Verdict, MeterDown>
) {
  const [cancelled, compared]: [Array<string>, Array<string>] = [[], []]
  const layer = layerFromMeter.pipe(
    Layer.provide([
      Layer.mock(Meter, {
        reserve: () => verdict,
        cancel: ({ id }) => Effect.sync(() => void cancelled.push(id))
      }),
      Layer.mock(SettlementQueue, {
        flush: () => flush,
        retry: (_, work) => Effect.asVoid(Effect.orDie(work))
      }),
      Layer.mock(Reconciler, {
        compare: ({ account }) => Effect.sync(() => void compared.push(account.key))
      }),
      Layer.succeed(Budget, { restore: () => Effect.void }),
      ModelRates.layer
    ])
  )
  yield* Effect.flatMap(Limiter, (limiter) => Effect.exit(limiter.reserve(model))).pipe(Effect.provide(layer))
  return { cancelled, compared }
})

it.effect(
  "when the Meter was asked, then the account is compared; when it did not answer, then the reservation is undone too",
  () =>
    Effect.gen(function* () {
      const down = Effect.fail(new MeterDown({ cause: "down" }))
      const compared = [caller.accountId]
      const refused = Effect.succeed(refusedBy("tokens"))
      assert.deepStrictEqual(yield* afterwards(Effect.void, down), { cancelled: ["r"], compared })
      assert.deepStrictEqual(yield* afterwards(Effect.void, refused), { cancelled: [], compared })
      assert.deepStrictEqual(yield* afterwards(down, Effect.die("asked")), { cancelled: [], compared: [] })
    })
)
