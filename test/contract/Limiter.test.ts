import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { type Headroom, noResets } from "../../src/domain/Limits.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { ModelHabits } from "../../src/gates/limits/ModelHabits.ts"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"
import { noReconciler } from "../support/noReconciler.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import {
  type ClaimName,
  Meter,
  MeterDown,
  Missing,
  Refused,
  type Verdict
} from "../../src/gates/meter/Meter.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { seal } from "../../src/domain/Evidence.ts"
import { askedOf, callerWith, modelNamed, verified, prepared, requestOf } from "../support/permits.ts"
import { testWith } from "../support/testWith.ts"

const headroom: Headroom = {
  requests: { limit: 60, remaining: 1 },
  tokens: { limit: 100, remaining: 2 },
  budgets: {},
  resets: noResets
}
const refusedBy = (by: ClaimName) =>
  new Refused({ by, scope: "key", limit: 7, isSpent: true, retryAfterS: 11, headroom })
const caller = { ...callerWith("all"), limits: { rpm: 1, tpm: 2, concurrent: 3 }, budgets: { day: 4 } }
const model = seal.Discovery(verified(caller), {
  ...askedOf(),
  request: prepared(requestOf()),
  model: modelNamed("m")
})

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
  const layer = Limiter.layer.pipe(
    Layer.provide([meter, budget, ModelHabits.layer, noReconciler]),
    Layer.provide(SettlementQueue.layer({ drainMs: 0 })),
    Layer.provide(Metrics.layer)
  )
  const reserve = Effect.flatMap(Limiter, (limiter) => limiter.reserve(model)).pipe(Effect.provide(layer))
  return { asked, layer, reserve }
}

const test = testWith(it.effect)

test("when totals are missing after they were restored, then nothing is decided", function* () {
  const { asked, reserve } = answering(new Missing({ instant: 0, counters: { day: "2026-11-21" } }))
  assert.deepInclude(yield* Effect.flip(reserve), { _tag: "Unavailable", gate: "Budget" })
  assert.lengthOf(asked, 2)
})

/** Reserves once, and returns the ids of the reservations that are cancelled afterwards, and the accounts that are compared. */
const afterwards = Effect.fnUntraced(function* (
  flush: Effect.Effect<void, MeterDown>,
  verdict: Effect.Effect<Verdict, MeterDown>
) {
  const [cancelled, compared]: [Array<string>, Array<string>] = [[], []]
  const layer = Limiter.layer.pipe(
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
        compare: ({ account }) => void compared.push(account.key)
      }),
      Layer.succeed(Budget, { restore: () => Effect.void }),
      ModelHabits.layer
    ])
  )
  yield* Effect.flatMap(Limiter, (limiter) => Effect.exit(limiter.reserve(model))).pipe(Effect.provide(layer))
  return { cancelled, compared }
})

test("when the Meter was asked, then the account is compared; when it did not answer, then the reservation is undone too", function* () {
  const down = Effect.fail(new MeterDown({ cause: "down" }))
  const compared = [caller.accountId]
  const refused = Effect.succeed(refusedBy("tokens"))
  assert.deepStrictEqual(yield* afterwards(Effect.void, down), { cancelled: ["r"], compared })
  assert.deepStrictEqual(yield* afterwards(Effect.void, refused), { cancelled: [], compared })
  assert.deepStrictEqual(yield* afterwards(down, Effect.die("asked")), { cancelled: [], compared: [] })
})
