/** How soon a worker that died is replaced. */
import { assert, it } from "@effect/vitest"
import { freeDeathsOf, maxDeathsOf, Restarts, windowMs } from "../../../src/workers/primary/restarts.ts"

const delays = (restarts: Restarts, count: number, now = 0) =>
  Array.from({ length: count }, () => {
    const next = restarts.died(now)
    return next === "give up" ? next : next.delayMs
  })

it("when workers die again and again, then they are replaced later and later, and after ten deaths no more", () => {
  assert.deepStrictEqual(delays(new Restarts(2), 11), [
    0,
    0,
    0,
    250,
    500,
    1000,
    2000,
    4000,
    5000,
    5000,
    "give up"
  ])
})

it("when all workers of a large gateway die at once, then all are replaced at once", () => {
  assert.deepStrictEqual([...new Set(delays(new Restarts(16), freeDeathsOf(16)))], [0])
  assert.strictEqual(maxDeathsOf(16), 48)
})

it("when a death is older than a minute, then it no longer counts", () => {
  const restarts = new Restarts(2)
  delays(restarts, 10)
  assert.deepStrictEqual(delays(restarts, 1, windowMs), [0])
})
