/** Keeps what Prometheus scraped in an outage, at the speed of production, for test/deploy/alerts.test.ts. */
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { Effect } from "effect"
import { Ground } from "./Ground.ts"
import { type Alert, ruleMetrics, timesFaster } from "./Prometheus.ts"

/** A value in promtool's notation, and how it is repeated: `_` is no value yet, `stale` none any more. */
const notation = (value: string, count: number): string => {
  if (value === "_") return `_x${count}`
  if (value === "stale") return count === 1 ? "stale" : `stale _x${count - 1}`
  return count === 1 ? value : `${value}x${count - 1}`
}

/** Runs of one value as one word. */
const inRuns = (values: ReadonlyArray<string>): string => {
  const runs: Array<{ readonly value: string; count: number }> = []
  for (const value of values) {
    const last = runs.at(-1)
    if (last?.value === value) last.count += 1
    else runs.push({ value, count: 1 })
  }
  return runs.map(({ count, value }) => notation(value, count)).join(" ")
}

export const record = Effect.fnUntraced(function* (
  outage: string,
  fromS: number,
  untilS: number,
  firing: ReadonlyArray<Alert>
) {
  const { prometheus, replicas } = yield* Ground
  const names = new Map(replicas.map(({ url }, i) => [new URL(url).host, i === 0 ? "a:8080" : "b:8080"]))
  const renamed = (labels: Readonly<Record<string, string>>) =>
    Object.fromEntries(
      Object.entries(labels).map(([label, value]) => [
        label,
        label === "instance" ? (names.get(value) ?? value) : value
      ])
    )
  const series: Record<string, string> = {}
  for (const metric of ruleMetrics) {
    const slower = metric.endsWith("_age_seconds") ? timesFaster : 1
    for (const { labels, values } of yield* prometheus.range(metric, fromS, untilS)) {
      const { __name__: name, ...others } = renamed(labels)
      const inner = Object.entries(others)
        .map(([label, value]) => `${label}="${value}"`)
        .join(",")
      const first = values.findIndex((value) => value !== undefined)
      series[`${name}{${inner}}`] = inRuns(
        values.map((value, i) => {
          if (i < first) return "_"
          // A missed scrape ends the series. promtool reads no NaN, which no rule takes for true either.
          return value === undefined || value === "NaN" ? "stale" : String(Number(value) * slower)
        })
      )
    }
  }
  const recorded = {
    outage,
    date: new Date().toISOString().slice(0, 10),
    minutes: ((untilS - fromS) * timesFaster) / 60,
    fired: firing.map(({ labels }) => renamed(labels)),
    series
  }
  const file = `${outage.toLowerCase().replaceAll(" ", "-")}.json`
  writeFileSync(
    path.resolve(import.meta.dirname, "../../test/deploy/alerts/recorded", file),
    `${JSON.stringify(recorded, undefined, 1)}\n`
  )
})
