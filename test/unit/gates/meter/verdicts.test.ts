import { assert, it } from "@effect/vitest"
import { noResets } from "../../../../src/domain/Limits.ts"
import { headroomWithout } from "../../../../src/gates/meter/verdicts.ts"

const reservation = {
  id: "a",
  claims: {
    account: { group: "g", key: "k" },
    limits: { rpm: 10, tpm: 100, concurrent: 1 },
    budgets: { day: 60 }
  },
  held: 50,
  available: 20,
  admittedAt: 0,
  slot: true
}

it("when a reservation is given back, then one request and what it held are left again, and never more than the limit", () => {
  const left = headroomWithout(
    {
      requests: { limit: 10, remaining: 9 },
      tokens: { limit: 100, remaining: 30 },
      budgets: { day: { limit: 60, remaining: 20 } },
      resets: noResets
    },
    reservation
  )
  assert.deepStrictEqual(left, {
    requests: { limit: 10, remaining: 10 },
    tokens: { limit: 100, remaining: 80 },
    budgets: { day: { limit: 60, remaining: 60 } },
    resets: noResets
  })
})

it("when more was held than there was, then no more is left than was available", () => {
  const none = { limit: 100, remaining: 0 }
  const left = headroomWithout(
    { requests: none, tokens: none, budgets: { day: none }, resets: noResets },
    reservation
  )
  assert.strictEqual(left.tokens.remaining, 20)
  assert.strictEqual(left.budgets.day?.remaining, 20)
})
