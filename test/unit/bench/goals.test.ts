/** The goals of the benchmark: judged from the medians of a run, and not judged without a figure. */
import { assert, it } from "@effect/vitest"
import type { ContenderName } from "../../../bench/gateway/contenders.ts"
import type { Sample } from "../../../bench/gateway/measure.ts"
import { goalsOf, type Results, tableOf } from "../../../bench/gateway/summary.ts"
import { table } from "../../../bench/gateway/works.ts"

const sampleOf = (figures: Partial<Sample>): Sample => ({
  rps: 0,
  cpuPerRequest: 0,
  cpuPerFrame: 0,
  firstP50: 0,
  firstP99: 0,
  frameP50: 0,
  frameP99: 0,
  rss: 0,
  statuses: "",
  good: 1,
  core0: 0,
  core1: 0,
  loadShare: 0,
  ...figures
})

type Of = Partial<Record<ContenderName, ReadonlyArray<Partial<Sample>>>>

const resultsOf = (works: Partial<Record<keyof typeof table, Of>>, idle = 0): Results => ({
  samples: new Map(
    Object.entries(works).map(([work, of]) => [
      Object.entries(table).find(([key]) => key === work)?.[1].name ?? "",
      new Map(
        Object.entries(of).map(([name, samples]) => [
          name === "bifrost" || name === "floor" ? name : "tollgate",
          samples.map(sampleOf)
        ])
      )
    ])
  ),
  idleRss: idle === 0 ? new Map() : new Map([["tollgate", idle]])
})

const goal = (results: Results, start: string) => {
  const { now, met } = goalsOf(results).find((one) => one.goal.startsWith(start)) ?? { now: "?", met: "?" }
  return { now, met }
}

it("when nothing was measured, then no goal is met", () => {
  assert.deepStrictEqual(new Set(goalsOf(resultsOf({})).map(({ met }) => met)), new Set(["not measured"]))
})

it("when Tollgate gives more requests than Bifrost at 32 connections but not at 96, then the goal is not met", () => {
  const faster = { tollgate: [{ rps: 90 }, { rps: 110 }, { rps: 500 }], bifrost: [{ rps: 100 }] }
  const slower = { tollgate: [{ rps: 99 }], bifrost: [{ rps: 100 }] }
  assert.deepStrictEqual(goal(resultsOf({ json32: faster, json96: slower }), "JSON requests"), {
    now: "1.10 ×, 0.99 ×",
    met: "no"
  })
  assert.deepStrictEqual(goal(resultsOf({ json32: faster, json96: faster }), "JSON requests").met, "yes")
})

it("when Bifrost took part in one of two works, then the goal is not measured", () => {
  const results = resultsOf({ json32: { tollgate: [{ rps: 110 }], bifrost: [{ rps: 100 }] } })
  assert.deepStrictEqual(goal(results, "JSON requests"), { now: "1.10 ×, –", met: "not measured" })
})

it("when the floor takes more CPU than where the goal was set, then the goal grows with it", () => {
  const of = { tollgate: [{ cpuPerRequest: 300 }], floor: [{ cpuPerRequest: 68 }] }
  assert.deepStrictEqual(goal(resultsOf({ json32: of }), "CPU a JSON"), { now: "150 µs", met: "yes" })
})

it("when first bytes and memory are at their bounds, then the goals are met", () => {
  const results = resultsOf({ first200: { tollgate: [{ firstP50: 1100, firstP99: 3000 }] } }, 120)
  assert.deepStrictEqual(goal(results, "first byte of a stream at 200").met, "yes")
  assert.deepStrictEqual(goal(results, "idle RSS").met, "yes")
  const over = resultsOf({ first200: { tollgate: [{ firstP50: 1100, firstP99: 3001 }] } }, 121)
  assert.deepStrictEqual(goal(over, "first byte of a stream at 200").met, "no")
  assert.deepStrictEqual(goal(over, "idle RSS").met, "no")
})

it("when a work was not measured, then the table has a dash for it", () => {
  const line = tableOf(resultsOf({ json32: { tollgate: [{ rps: 2921, cpuPerRequest: 262.4 }] } }))
    .split("\n")
    .find((row) => row.startsWith("| tollgate"))
  assert.match(line ?? "", /^\| tollgate \| 2921 \| 262 \| 0\.00 \/ 0\.0 \| – \| – \|/)
})

it("when one answer in a hundred is an error, then the contender has no figures at that work", () => {
  const of = { tollgate: [{ rps: 110 }], bifrost: [{ rps: 90 }, { rps: 5000, good: 0.99 }, { rps: 90 }] }
  const results = resultsOf({ json32: of, json96: of })
  assert.deepStrictEqual(goal(results, "JSON requests"), { now: "–, –", met: "not measured" })
  assert.notMatch(tableOf(results), /^\| bifrost \| \d/m)
})

it("when a contender has no figures at a work, then its memory after the run is still in the table", () => {
  const of = { bifrost: [{ rps: 5000, good: 0, rss: 192 }] }
  assert.match(tableOf(resultsOf({ json32: of })), /^\| bifrost \| – .* – \/ 192 \|$/m)
})
