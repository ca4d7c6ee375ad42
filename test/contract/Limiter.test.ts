import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { type Headroom, noResets } from "../../src/domain/Limits.ts"
import { Unavailable } from "../../src/domain/Errors.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { layerFromMeter } from "../../src/gates/limits/limiterFromMeter.ts"
import { ModelRates } from "../../src/gates/limits/TokenRates.ts"
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
const refusedBy = (by: ClaimName) => new Refused({ by, scope: "key", limit: 7, retryAfterS: 11, headroom })
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

/** What the Limiter claims for `model`. */
const claimsOfModel: Claims = {
  account: { group: caller.tenantId, key: caller.accountId },
  limits: caller.limits,
  budgets: caller.budgets,
  tenantBudgets: caller.tenantBudgets
}

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
    Layer.provide([meter, budget, ModelRates.layer, SettlementQueue.layer({ drainMs: 0 })]),
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
    assert.strictEqual(evidence.facts.call.maxTokens, 49)
  })
)

it.effect("when totals are missing after they were restored, then nothing is decided", () =>
  Effect.gen(function* () {
    const { asked, reserve } = answering(new Missing({ counters: { day: "2026-11-21" } }))
    assert.deepInclude(yield* Effect.flip(reserve), { _tag: "Unavailable", gate: "Budget" })
    assert.lengthOf(asked, 2)
  })
)

/** What was expected of one request after the other, whose verdicts are these; `down`: the Meter does not answer. */
const expectations = Effect.fnUntraced(function* (verdicts: ReadonlyArray<Verdict | "down">) {
  const order: Array<string> = []
  let n = 0
  const meter = Layer.mock(Meter, {
    reserve: () =>
      Effect.suspend(() => {
        order.push("asked")
        const verdict = verdicts[n++] ?? "down"
        return verdict === "down" ? new MeterDown({ cause: "down" }) : Effect.succeed(verdict)
      }),
    cancel: () => Effect.void
  })
  const budget = Layer.succeed(Budget, { restore: () => Effect.void })
  const layer = layerFromMeter.pipe(
    Layer.provide([meter, budget, ModelRates.layer]),
    Layer.provide(SettlementQueue.layer({ drainMs: 0 })),
    Layer.provide(Metrics.layer)
  )
  yield* Effect.gen(function* () {
    const limiter = yield* Limiter
    while (n < verdicts.length)
      yield* Effect.exit(
        limiter.reserve(model, ({ admittedAt, held, id }) => void order.push(`${id} ${held} ${admittedAt}`))
      )
  }).pipe(Effect.provide(layer))
  return order.join(", ")
})

it.effect(
  "when a request is likely to be admitted, then its reservation is expected before the Meter is asked",
  () =>
    Effect.gen(function* () {
      const admittedAt = Date.UTC(2026, 10, 21, 12)
      const left = { limit: 10_000, remaining: 10_000 }
      const reserved = new Reserved({
        reservation: { ...reservation, admittedAt, claims: claimsOfModel },
        headroom: { ...headroom, requests: left, tokens: left }
      })
      const missing = new Missing({ counters: { day: "2026-11-21" } })
      const expected = `r 101 ${admittedAt}`
      const after = (verdict: Verdict | "down") => expectations([reserved, verdict, reserved])
      assert.strictEqual(yield* after(reserved), `asked, ${expected}, asked, ${expected}, asked`)
      assert.strictEqual(yield* after(refusedBy("concurrency")), `asked, ${expected}, asked, asked`)
      assert.strictEqual(yield* after("down"), `asked, ${expected}, asked, asked`)
      // It is asked twice for the second request, whose counters were missing.
      assert.strictEqual(
        yield* expectations([reserved, missing, refusedBy("day"), reserved]),
        `asked, ${expected}, asked, asked, asked`
      )
    })
)

it.effect(
  "when a pending settlement cannot be delivered, then the request is refused, no admission is expected for its account, and nothing is undone",
  () =>
    Effect.gen(function* () {
      const left = { limit: 10_000, remaining: 10_000 }
      const reserved = new Reserved({
        reservation: { ...reservation, admittedAt: Date.UTC(2026, 10, 21, 12), claims: claimsOfModel },
        headroom: { ...headroom, requests: left, tokens: left }
      })
      let [expected, undone] = [0, 0]
      let isDown = false
      const flush = () => (isDown ? Effect.fail(new MeterDown({ cause: "down" })) : Effect.void)
      const layer = layerFromMeter.pipe(
        Layer.provide([
          Layer.mock(Meter, { reserve: () => Effect.succeed(reserved), cancel: () => Effect.void }),
          Layer.mock(SettlementQueue, { flush, retry: () => Effect.sync(() => void (undone += 1)) }),
          Layer.succeed(Budget, { restore: () => Effect.void }),
          ModelRates.layer
        ])
      )
      yield* Effect.gen(function* () {
        const limiter = yield* Limiter
        const reserve = Effect.suspend(() => Effect.exit(limiter.reserve(model, () => void (expected += 1))))
        yield* reserve
        isDown = true
        for (let n = 0; n < 10; n++) assert.instanceOf(yield* Effect.flip(yield* reserve), Unavailable)
      }).pipe(Effect.provide(layer))
      assert.strictEqual(expected, 1, "only the first such request has a prepared intent")
      assert.strictEqual(undone, 0, "the Meter was not asked for a reservation")
    })
)
