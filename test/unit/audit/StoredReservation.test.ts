/** What an intent keeps of its reservation, and what crash recovery reads of it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import * as fc from "fast-check"
import { readReservation, storedReservation } from "../../../src/audit/StoredReservation.ts"
import type { Budgets } from "../../../src/domain/Limits.ts"
import type { Reservation } from "../../../src/domain/Reservation.ts"

const [id, group, key] = [
  "01920000-0000-7000-8000-000000000001",
  "01920000-0000-7000-8000-00000000000a",
  "01920000-0000-7000-8000-00000000000b"
]

const amount = fc.maxSafeNat()
const budgets: fc.Arbitrary<Budgets> = fc.record(
  { day: amount, month: amount, total: amount },
  { requiredKeys: [] }
)
const reservation = fc
  .record({
    budgets,
    tenantBudgets: budgets,
    held: amount,
    available: amount,
    admittedAt: amount,
    slot: fc.boolean()
  })
  .map(({ budgets, tenantBudgets, ...held }): Reservation => ({
    id,
    claims: {
      account: { group, key },
      limits: { rpm: 0, tpm: 0, concurrent: 0 },
      budgets,
      tenantBudgets
    },
    ...held
  }))

const isRefused = (stored: unknown): boolean =>
  Exit.isFailure(Effect.runSyncExit(readReservation(id, group, stored)))

describe("the stored reservation", () => {
  it("when it is read again, then it is the same but for the limits", () => {
    fc.assert(
      fc.property(reservation, (made) => {
        const limited = { ...made, claims: { ...made.claims, limits: { rpm: 7, tpm: 8, concurrent: 9 } } }
        const stored = storedReservation(limited)
        assert.match(stored, /^[\w/-]+$/)
        assert.deepStrictEqual(Effect.runSync(readReservation(id, group, stored)), made)
      })
    )
  })

  it("when the caller has no tenant's budgets, then they are read as none", () => {
    const claims = { account: { group, key }, limits: { rpm: 1, tpm: 1, concurrent: 1 }, budgets: { day: 5 } }
    const stored = storedReservation({ id, claims, held: 1, available: 2, admittedAt: 3, slot: true })
    assert.strictEqual(stored, `${key}/1/2/3/1/5/-/-/-/-/-`)
    const { tenantBudgets } = Effect.runSync(readReservation(id, group, stored)).claims
    assert.deepStrictEqual(tenantBudgets, {})
  })

  it("when a gateway of before wrote the whole reservation, then it is read as it is", () => {
    fc.assert(
      fc.property(reservation, (made) => {
        const stored: unknown = JSON.parse(JSON.stringify({ ...made, buckets: {} }))
        assert.deepStrictEqual(Effect.runSync(readReservation(id, group, stored)), made)
      })
    )
  })

  it("when it is damaged, then it is refused", () => {
    const whole = `${key}/1/2/3/1/5/-/-/-/-/-`
    for (const damaged of [
      "",
      whole.slice(36),
      whole.slice(0, -2),
      `${whole}/-`,
      whole.replace("/1/2/", "//2/"),
      whole.replace("/1/2/", "/-1/2/"),
      whole.replace("/1/2/", "/1e3/2/"),
      whole.replace("/3/1/", "/3/2/"),
      whole.replace("/5/", "/NaN/"),
      {},
      null,
      7
    ])
      assert.isTrue(isRefused(damaged), JSON.stringify(damaged))
  })
})
