/** When an admission is expected, and what a wrong guess may cost. */
import { assert, describe, it } from "vitest"
import type { Headroom } from "../../../src/domain/Limits.ts"
import { noResets } from "../../../src/domain/Limits.ts"
import type { Claims } from "../../../src/domain/Reservation.ts"
import { ExpectedAdmissions } from "../../../src/gates/limits/ExpectedAdmissions.ts"
import { Reserved } from "../../../src/gates/meter/Meter.ts"
import { noon } from "../../support/records.ts"

const claimsOf = (key: string): Claims => ({
  account: { group: "g", key },
  limits: { rpm: 100, tpm: 10_000, concurrent: 10 },
  budgets: {}
})
const claims = claimsOf("a")
const ask = { id: "r", tokens: 100, slot: true }

interface Left {
  readonly requests?: number
  readonly tokens?: number
  readonly budgets?: Headroom["budgets"]
  readonly tenantBudgets?: Headroom["budgets"]
  readonly at?: number
}

const reserved = (
  { at = noon, budgets = {}, requests = 50, tenantBudgets, tokens = 5000 }: Left,
  of = claims
) =>
  new Reserved({
    reservation: { id: "before", claims: of, held: 100, available: 5000, admittedAt: at, slot: true },
    headroom: {
      requests: { limit: 100, remaining: requests },
      tokens: { limit: 10_000, remaining: tokens },
      budgets,
      ...(tenantBudgets === undefined ? {} : { tenantBudgets }),
      resets: noResets
    }
  })

/** The last request of the account was admitted at 0, in monotonic ms, and left this. */
const after = (left: Left): ExpectedAdmissions => {
  const admissions = new ExpectedAdmissions()
  admissions.admitted(reserved(left), 0)
  return admissions
}

const of = (limit: number, remaining: number) => ({ limit, remaining })

describe("expected admissions", () => {
  it("when nothing is known of an account, then no admission is expected", () => {
    assert.isUndefined(new ExpectedAdmissions().expect(claims, ask, 0))
    assert.isUndefined(after({}).expect(claimsOf("b"), ask, 0))
  })

  it("when the last request left enough, then the reservation has the whole hold and the time of the store", () => {
    assert.deepStrictEqual(after({}).expect(claims, ask, 1500.4), {
      id: "r",
      claims,
      held: 100,
      available: 5000,
      admittedAt: noon + 1500,
      slot: true
    })
  })

  it("when requests that are expected use up what was left, then no more are expected until the next admission", () => {
    for (const left of [
      { requests: 2 },
      { tokens: 250 },
      { budgets: { day: of(1000, 250) } },
      { budgets: { month: of(1000, 250), total: of(1000, 900) } },
      { tenantBudgets: { total: of(1000, 250) } }
    ]) {
      const admissions = after(left)
      const expected = () => admissions.expect(claims, ask, 1) !== undefined
      assert.deepStrictEqual([expected(), expected(), expected()], [true, true, false], JSON.stringify(left))
      admissions.admitted(reserved({}), 2)
      assert.isTrue(expected())
    }
  })

  it("when requests come at once, then no more admissions are expected than the key has slots, until the next admission", () => {
    const admissions = after({})
    const expectedOf = (count: number, slot = true) =>
      Array.from({ length: count }).filter(() => admissions.expect(claims, { ...ask, tokens: 1, slot }, 1))
        .length
    assert.strictEqual(expectedOf(30), claims.limits.concurrent)
    assert.strictEqual(expectedOf(5, false), 5, "a request without a slot")
    admissions.admitted(reserved({}), 2)
    assert.strictEqual(expectedOf(30), claims.limits.concurrent)
  })

  it("when a request was not admitted, then no admission is expected for its account for 10 s", () => {
    const admissions = after({})
    admissions.admitted(reserved({}, claimsOf("b")), 0)
    admissions.notAdmitted(claims, 1000)
    // Other requests of the account may be admitted meanwhile.
    admissions.admitted(reserved({ at: noon + 2000 }), 2000)
    assert.isUndefined(admissions.expect(claims, ask, 10_999))
    assert.isDefined(admissions.expect(claimsOf("b"), ask, 2000))
    assert.isDefined(admissions.expect(claims, ask, 11_000))
  })

  it("when the store has lost counters, then no admission is expected before the next one of the account", () => {
    const admissions = after({})
    admissions.lost()
    assert.isUndefined(admissions.expect(claims, ask, 1))
    admissions.admitted(reserved({}), 2)
    assert.isDefined(admissions.expect(claims, ask, 3))
  })

  it("when the day of the admission is not certain or is another one, then none is expected", () => {
    const midnight = noon + 12 * 3_600_000
    const at = (store: number): boolean =>
      after({ at: midnight - 10_000 }).expect(claims, ask, store - (midnight - 10_000)) !== undefined
    assert.isTrue(at(midnight - 5001))
    assert.isFalse(at(midnight - 4999))
    assert.isFalse(at(midnight + 4999))
    assert.isFalse(at(midnight + 3_600_000), "the counters of the new day may not be loaded yet")
  })

  it("when the store has lost counters, then refused accounts stay in doubt", () => {
    const admissions = after({})
    admissions.notAdmitted(claims, 0)
    admissions.lost()
    admissions.admitted(reserved({}), 1)
    assert.isUndefined(admissions.expect(claims, ask, 2))
  })

  it("when an account has got a budget for another period, then no admission is expected: its counter may be missing", () => {
    const admissions = after({ budgets: { day: of(1000, 500) } })
    assert.isDefined(admissions.expect(claims, ask, 1))
    for (const budgets of [{ day: 1000 }, { month: 1000 }, { total: 1000 }]) {
      assert.isUndefined(admissions.expect({ ...claims, budgets }, ask, 1), JSON.stringify(budgets))
      assert.isUndefined(admissions.expect({ ...claims, tenantBudgets: budgets }, ask, 1))
    }
    const more = { ...claims, budgets: { day: 1000 } }
    admissions.admitted(reserved({}, more), 2)
    assert.isDefined(
      admissions.expect({ ...more, budgets: { day: 2000 } }, ask, 3),
      "a larger budget of the same period"
    )
  })

  it("when there are more accounts than are remembered, then all are forgotten and memory stays bounded", () => {
    const admissions = after({})
    for (let n = 1; n < 10_000; n++) admissions.admitted(reserved({}, claimsOf(`k${n}`)), 0)
    assert.isDefined(admissions.expect(claims, ask, 0))
    admissions.admitted(reserved({}, claimsOf("one more")), 0)
    assert.isUndefined(admissions.expect(claims, ask, 0))
    assert.isDefined(admissions.expect(claimsOf("one more"), ask, 0))
  })
})
