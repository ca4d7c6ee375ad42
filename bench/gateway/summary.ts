/** The table of all, from the samples of one run. */
import type { ContenderName } from "./contenders.ts"
import type { Sample } from "./measure.ts"
import { median } from "./report.ts"
import { table } from "./works.ts"

export interface Results {
  readonly samples: ReadonlyMap<string, ReadonlyMap<ContenderName, ReadonlyArray<Sample>>>
  /** MiB, before the first request */
  readonly idleRss: ReadonlyMap<ContenderName, number>
}

type WorkKey = keyof typeof table
type Figure = Exclude<keyof Sample, "statuses">

/** Errors are cheap: who answers with one more often than this has no figures at that work. */
const leastGood = 0.999

/** A figure of a contender at a work: its median over the rounds; `undefined` when it was not measured. */
const figureOf = (
  { samples }: Results,
  work: string,
  name: ContenderName,
  figure: Figure
): number | undefined => {
  const measured = samples.get(work)?.get(name) ?? []
  return measured.length === 0 || measured.some(({ good }) => good < leastGood)
    ? undefined
    : median(measured.map((sample) => sample[figure]))
}

const show = (value: number | undefined, digits = 0): string =>
  value === undefined ? "–" : value.toFixed(digits)
const ms = (us: number | undefined): number | undefined => (us === undefined ? undefined : us / 1000)

/** Requests a second, µs of CPU and first byte of the saturated works; the frames; first bytes at a steady rate; memory. */
export const tableOf = (results: Results): string => {
  const names = new Set([...results.samples.values()].flatMap((of) => [...of.keys()]))
  const lines = [
    "| | JSON, 32: req/s | µs CPU | p50 / p99 ms | JSON, 96: req/s | µs CPU | stream, 32: req/s | µs CPU | p50 / p99 ms | stream, 96: req/s | µs CPU | µs CPU a frame | first byte at 200/s, p50 / p99 ms | at 600/s | RSS idle / after MiB |",
    `|---|${"---|".repeat(14)}`
  ]
  for (const name of names) {
    const of = (work: WorkKey, figure: Figure) => figureOf(results, table[work].name, name, figure)
    const saturated = (work: WorkKey) => [show(of(work, "rps")), show(of(work, "cpuPerRequest")), bytes(work)]
    const bytes = (work: WorkKey) =>
      `${show(ms(of(work, "firstP50")), 2)} / ${show(ms(of(work, "firstP99")), 1)}`
    const after = Math.max(
      0,
      ...[...results.samples.values()].flatMap((of) => (of.get(name) ?? []).map(({ rss }) => rss))
    )
    lines.push(
      `| ${[
        name,
        ...saturated("json32"),
        ...saturated("json96").slice(0, 2),
        ...saturated("stream32"),
        ...saturated("stream96").slice(0, 2),
        show(of("paced", "cpuPerFrame"), 1),
        bytes("first200"),
        bytes("first600"),
        `${show(results.idleRss.get(name))} / ${show(after)}`
      ].join(" | ")} |`
    )
  }
  return `${lines.join("\n")}\n`
}
