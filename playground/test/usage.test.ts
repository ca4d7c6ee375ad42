import { assert, it } from "@effect/vitest"
import { duration, percent } from "../script/figures.js"
import { explain } from "../script/problems.js"
import { levelOf, secondsOf, tightestOf, tightestText, usageOf, usedText } from "../script/usage.js"
import { type Outcome, outcomes } from "../../src/domain/Outcome.ts"

const headersOf = (more: Readonly<Record<string, string>> = {}) =>
  new Headers({
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "57",
    "x-ratelimit-reset-requests": "1m3s",
    "x-ratelimit-limit-tokens": "1000",
    "x-ratelimit-remaining-tokens": "500",
    "x-ratelimit-reset-tokens": "0s",
    ...more
  })
const budget = (left: number, more: Readonly<Record<string, string>> = {}) =>
  headersOf({
    "x-budget-period": "day",
    "x-budget-tokens-remaining": String(left),
    "x-budget-tokens-limit": "100",
    "x-budget-reset": "3600",
    ...more
  })

it("when a fresh page sees a budget that is 94 % spent, then it says so, and that this is the limit that binds", () => {
  const usage = usageOf(budget(6))
  const tightest = tightestOf(usage)
  assert.strictEqual(tightest?.name, "budget")
  assert.strictEqual(levelOf(tightest?.share), "low")
  assert.strictEqual(usedText({ limit: 100, left: 6 }), "94 of 100")
  assert.strictEqual(tightestText(tightest), "94 % of today's budget used.")
  assert.deepStrictEqual(
    usage.map(({ name, resetS }) => [name, resetS]),
    [
      ["requests", 63],
      ["tokens", 0],
      ["budget", 3600]
    ]
  )
})

it("when the share grows, then it is amber from 80 % and red from 95 %", () => {
  const levels = [0, 0.79, 0.8, 0.94, 0.95, 1].map((share) => levelOf(share))
  assert.deepStrictEqual(levels, ["", "", "low", "low", "out", "out"])
  assert.strictEqual(levelOf(tightestOf(usageOf(budget(0)))?.share), "out")
  assert.match(tightestText(tightestOf(usageOf(budget(0)))), /^All of today's budget is used/)
})

it("when a budget is in total, then nothing says that it starts again; a tenant's budget is told as shared", () => {
  const [total] = usageOf(budget(6, { "x-budget-period": "total", "x-budget-scope": "tenant" })).slice(-1)
  assert.deepInclude(total, { label: "Budget in total", shared: true, resetS: undefined })
})

it("when the size of a budget is not known, then no share is invented", () => {
  const headers = budget(6)
  headers.delete("x-budget-tokens-limit")
  const usage = usageOf(headers)
  assert.isUndefined(usage.at(-1)?.share)
  assert.strictEqual(tightestOf(usage)?.name, "tokens")
  assert.deepStrictEqual(usageOf(new Headers()), [])
})

it("when durations are read and told, then in the units of the gateway and of people", () => {
  assert.deepStrictEqual(
    ["59s", "1m0s", "61m3s", "7", "", null, "soon"].map((text) => secondsOf(text)),
    [59, 60, 3663, 7, undefined, undefined, undefined]
  )
  assert.deepStrictEqual(
    [0.2, 89, 100, 3600, 4000, 90_000, 700_000].map((seconds) => duration(seconds)),
    ["1 s", "89 s", "2 min", "1 h", "1 h 7 min", "25 h", "8 days 2 h"]
  )
  assert.deepStrictEqual([percent(0.996), percent(0.001)], ["99 %", "< 1 %"])
})

it("when a request can end with an error, then the page has words for it and says what to do", () => {
  const told = new Set<string>()
  for (const { type, status } of Object.values<Outcome>(outcomes)) {
    if (type === undefined || status === 499 || type === "aborted") continue
    const { title, advice } = explain({ type, status })
    assert.isNotEmpty(title)
    assert.match(advice, /\.$/)
    told.add(title)
  }
  assert.isAtLeast(told.size, 11)
  const budget = { type: "budget_exceeded", status: 429 }
  const { title } = explain({ ...budget, message: "daily budget of 9 tokens is held by requests that run" })
  assert.match(title, /^Running requests hold/)
  assert.match(explain({ ...budget, message: "daily budget of 9 tokens is spent" }).title, /is spent$/)
  assert.strictEqual(explain({ type: "new_type", status: 502 }).title, "The gateway made a mistake")
})
