import { assert, it } from "@effect/vitest"
import { MemoryMeter } from "../../../../../src/gates/meter/memory/MemoryMeter.ts"
import { Missing, Reserved } from "../../../../../src/gates/meter/Meter.ts"
import type { Claims } from "../../../../../src/domain/Reservation.ts"

const claimsOf = (key: string): Claims => ({
  account: { group: "g", key },
  limits: { rpm: 1000, tpm: 100_000, concurrent: 10 },
  budgets: {}
})
const begin = Date.UTC(2026, 10, 21)
const hour = 3_600_000
const day = 24 * hour

it("when 20 000 requests came, then those older than an hour are gone", () => {
  const counters = new MemoryMeter({ leaseS: 30 })
  for (let i = 0; i < 20_000; i++) {
    const now = begin + i * 1000
    const verdict = counters.reserve(claimsOf("k"), { id: `r${i}`, tokens: 5, slot: true }, now)
    assert.instanceOf(verdict, Reserved)
    if (verdict instanceof Reserved) counters.settle(verdict.reservation, 5, now)
  }
  assert.isAtMost(counters.size.requests, 3601)
})

it("when a request has ended, then its id is remembered for its time and then forgotten", () => {
  const counters = new MemoryMeter({ leaseS: 30, rememberS: 60 })
  counters.cancel(claimsOf("k"), "late", begin)
  const ask = { id: "late", tokens: 5, slot: true }
  assert.isUndefined(counters.reserve(claimsOf("k"), ask, begin + 59_999))
  assert.instanceOf(counters.reserve(claimsOf("k"), ask, begin + 60_000), Reserved)
})

it("when an account is idle, then it is dropped, and while a request runs it is kept", () => {
  const counters = new MemoryMeter({ leaseS: 30 })
  const verdict = counters.reserve(claimsOf("busy"), { id: "b", tokens: 5, slot: true }, begin)
  for (let i = 0; i < 1000; i++) counters.peek(claimsOf(`idle${i}`), begin)
  assert.strictEqual(counters.size.accounts, 1001)
  for (let s = 10; s < 600; s += 10) {
    if (verdict instanceof Reserved) counters.renew(verdict.reservation, s, 1000, begin + s * 1000)
  }
  assert.strictEqual(counters.size.accounts, 1)
})

it("when a period has long ended, then its totals are dropped, and those of a running one are not", () => {
  const counters = new MemoryMeter({ leaseS: 30 })
  const { account, limits } = claimsOf("k")
  const claims = { account, limits, budgets: { day: 100, month: 100 } }
  for (let at = begin; at < begin + 6 * day; at += 60_000) {
    counters.load(
      account,
      at === begin
        ? [
            { counter: "2026-11-21", tokens: 7 },
            { counter: "2026-11", tokens: 8 }
          ]
        : [],
      at
    )
  }
  const first = counters.peek(claims, begin + 6 * day)
  assert.deepStrictEqual(first, new Missing({ counters: { day: "2026-11-27" } }))
  // A clock that goes back to the first day finds no stale total there.
  assert.deepStrictEqual(counters.peek(claims, begin), new Missing({ counters: { day: "2026-11-21" } }))
})
