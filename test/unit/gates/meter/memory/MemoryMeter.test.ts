/** What holds on the twin whatever is asked, and what it forgets. The Meter in Redis is compared with it. */
import { assert, it } from "@effect/vitest"
import fc from "fast-check"
import type { Claims, Reservation } from "../../../../../src/domain/Reservation.ts"
import { MemoryMeter } from "../../../../../src/gates/meter/memory/MemoryMeter.ts"
import { Missing, Refused, Reserved } from "../../../../../src/gates/meter/Meter.ts"

const claimsOf = (key: string): Claims => ({
  account: { group: "g", key },
  limits: { rpm: 1000, tpm: 100_000, concurrent: 10 },
  budgets: {}
})
const begin = Date.UTC(2026, 10, 21)
const hour = 3_600_000
const day = 24 * hour

interface Event {
  readonly at: number
  readonly amount: number
}

/** The most that any 60 seconds have. */
const mostInAMinute = (events: ReadonlyArray<Event>): number =>
  Math.max(
    0,
    ...events.map(({ at: from }) =>
      events.reduce((sum, { amount, at }) => sum + (at >= from && at < from + 60_000 ? amount : 0), 0)
    )
  )

const play = fc.record({
  limits: fc.record({
    rpm: fc.integer({ min: 1, max: 6 }),
    tpm: fc.integer({ min: 1, max: 100 }),
    concurrent: fc.integer({ min: 1, max: 4 })
  }),
  budget: fc.integer({ min: 0, max: 400 }),
  steps: fc.array(
    fc.record({
      afterMs: fc.integer({ min: 0, max: 20_000 }),
      tokens: fc.integer({ min: 1, max: 60 }),
      /** what becomes of the oldest running request, if anything */
      end: fc.constantFrom("settle", "settle", "cancel", "extend", "nothing"),
      share: fc.double({ min: 0, max: 1, noNaN: true })
    }),
    { maxLength: 80, size: "max" }
  )
})

it("when requests of any kind come and end, then no minute has more than the limits, the budget is kept, sums add up, and nothing is left", () => {
  fc.assert(
    fc.property(play, ({ budget, limits, steps }) => {
      const meter = new MemoryMeter({ leaseS: 30 })
      const claims = { account: { group: "g", key: "k" }, limits, budgets: { total: budget } }
      meter.load(claims.account, [{ counter: "total", tokens: 0 }], begin)
      const [admitted, used]: [Array<Event & { readonly id: string }>, Array<Event>] = [[], []]
      const running: Array<Reservation> = []
      let now = begin
      const end = (one: Reservation, tokens: number) => {
        const { held } = meter.renew(one, 0, 0, now)
        const amount = Math.min(tokens, held)
        meter.settle(one, amount, now)
        used.push({ at: now, amount })
      }
      for (const [i, step] of steps.entries()) {
        now += step.afterMs
        const verdict = meter.reserve(claims, { id: `r${i}`, tokens: step.tokens, slot: true }, now)
        if (verdict instanceof Reserved) {
          running.push(verdict.reservation)
          admitted.push({ id: `r${i}`, at: now, amount: 1 })
        }
        const [oldest] = running
        if (oldest === undefined || step.end === "nothing") continue
        if (step.end === "extend") meter.renew(oldest, 0, step.tokens * 2, now)
        else running.shift()
        if (step.end === "settle") end(oldest, Math.round(step.share * 120))
        if (step.end === "cancel") {
          meter.cancel(claims, oldest.id, now)
          admitted.splice(
            admitted.findIndex(({ id }) => id === oldest.id),
            1
          )
        }
      }
      for (const one of running) end(one, one.held)
      assert.isAtMost(mostInAMinute(admitted), limits.rpm)
      assert.isAtMost(mostInAMinute(used), limits.tpm)
      const { lapsed, open, totals } = meter.survey(claims.account, now, now)
      const sum = used.reduce((all, { amount }) => all + amount, 0)
      assert.deepStrictEqual([open, lapsed, totals.total], [0, [], sum])
      assert.isAtMost(sum, budget)
      const left = meter.peek({ ...claims, budgets: {} }, now + 60_500)
      assert.deepInclude(left, {
        requests: { limit: limits.rpm, remaining: limits.rpm },
        tokens: { limit: limits.tpm, remaining: limits.tpm }
      })
    }),
    { numRuns: 300 }
  )
})

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
  for (let s = 10; s < 7200; s += 10) {
    if (verdict instanceof Reserved) counters.renew(verdict.reservation, s, 1000, begin + s * 1000)
  }
  assert.strictEqual(counters.size.accounts, 1)
})

it("when a user was only refused, then nothing is kept of it", () => {
  const counters = new MemoryMeter({ leaseS: 30 })
  const { limits } = claimsOf("k")
  const of = (id: string) => ({
    ...claimsOf("k"),
    limits: { ...limits, rpm: 1 },
    user: { id, limits, budgets: {} }
  })
  const taken = counters.reserve(of("ada"), { id: "a", tokens: 5, slot: false }, begin)
  for (let i = 0; i < 500; i++)
    assert.instanceOf(
      counters.reserve(of(`u${i}`), { id: `r${i}`, tokens: 5, slot: false }, begin + 1000),
      Refused
    )
  if (taken instanceof Reserved) counters.settle(taken.reservation, 5, begin + 70_000)
  assert.strictEqual(counters.size.accounts, 2)
  assert.deepInclude(counters.peek(of("ada"), begin + 70_000), {
    tokens: { limit: limits.tpm, remaining: limits.tpm - 5 }
  })
})

it("when a period has long ended, then its totals are dropped, and those of a running one are not", () => {
  const counters = new MemoryMeter({ leaseS: 30 })
  const { account, limits } = claimsOf("k")
  const claims = { account, limits, budgets: { day: 100, month: 100 } }
  const first = [
    { counter: "2026-11-21", tokens: 7 },
    { counter: "2026-11", tokens: 8 }
  ]
  for (let at = begin; at < begin + 6 * day; at += hour) counters.load(account, at === begin ? first : [], at)
  const missing = counters.peek(claims, begin + 6 * day)
  assert.deepStrictEqual(
    missing,
    new Missing({ instant: Date.UTC(2026, 10, 27), counters: { day: "2026-11-27" } })
  )
  // A clock that goes back to the first day finds no stale total there.
  assert.deepStrictEqual(
    counters.peek(claims, begin),
    new Missing({ instant: Date.UTC(2026, 10, 21), counters: { day: "2026-11-21" } })
  )
})
