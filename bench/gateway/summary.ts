/** The table of all and the goals, from the samples of one run. */
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

interface Goal {
  readonly goal: string
  readonly now: string
  readonly met: "yes" | "no" | "not measured"
}

/** Met when there is a figure and it is good enough; a goal against Bifrost when it did not take part is not measured. */
const judge = (goal: string, parts: ReadonlyArray<Part>): Goal => ({
  goal,
  now: parts
    .map(({ value, unit, digits = 2 }) => (value === undefined ? "–" : `${value.toFixed(digits)}${unit}`))
    .join(", "),
  met: parts.some(({ value, ok }) => value !== undefined && !ok(value))
    ? "no"
    : parts.every(({ value }) => value !== undefined)
      ? "yes"
      : "not measured"
})

interface Part {
  readonly value: number | undefined
  readonly unit: string
  readonly digits?: number
  readonly ok: (value: number) => boolean
}

const over = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || other === undefined ? undefined : one / other
const atMost = (limit: number) => (value: number) => value <= limit
const above = (limit: number) => (value: number) => value > limit

/** What a request costs where the floor costs 34 µs: machines and their hours differ. */
const referenceFloorUs = 34

export const goalsOf = (results: Results): ReadonlyArray<Goal> => {
  const of = (work: WorkKey, name: ContenderName, figure: Figure) =>
    figureOf(results, table[work].name, name, figure)
  const toBifrost = (work: WorkKey, figure: Figure) =>
    over(of(work, "tollgate", figure), of(work, "bifrost", figure))
  const toFloor = (work: WorkKey, figure: Figure) =>
    over(of(work, "tollgate", figure), of(work, "floor", figure))
  const first = (work: WorkKey, p50: number, p99: number): ReadonlyArray<Part> => [
    { value: ms(of(work, "tollgate", "firstP50")), unit: " ms", ok: atMost(p50) },
    { value: ms(of(work, "tollgate", "firstP99")), unit: " ms", digits: 1, ok: atMost(p99) }
  ]
  const jsonToFloor = toFloor("json32", "cpuPerRequest")
  return [
    judge("JSON requests a second at 32 and 96 connections > 1.0 × Bifrost", [
      { value: toBifrost("json32", "rps"), unit: " ×", ok: above(1) },
      { value: toBifrost("json96", "rps"), unit: " ×", ok: above(1) }
    ]),
    judge(`CPU a JSON request ≤ 180 µs where the floor's is ${referenceFloorUs}`, [
      {
        value: jsonToFloor === undefined ? undefined : jsonToFloor * referenceFloorUs,
        unit: " µs",
        digits: 0,
        ok: atMost(180)
      }
    ]),
    judge("CPU a stream of 3 frames ≤ 0.7 × Bifrost", [
      { value: toBifrost("stream32", "cpuPerRequest"), unit: " ×", ok: atMost(0.7) }
    ]),
    judge("CPU a paced frame ≤ 1.3 × the re-encoding floor", [
      { value: toFloor("paced", "cpuPerFrame"), unit: " ×", ok: atMost(1.3) }
    ]),
    judge("first byte of a stream at 200 a second, p50 ≤ 1.1, p99 ≤ 3 ms", first("first200", 1.1, 3)),
    judge("first byte of a stream at 600 a second, p50 ≤ 1.3, p99 ≤ 10 ms", first("first600", 1.3, 10)),
    judge("idle RSS ≤ 120 MiB", [
      { value: results.idleRss.get("tollgate"), unit: " MiB", digits: 0, ok: atMost(120) }
    ]),
    judge("embeddings of 64 × 384: CPU ≤ 2 × the floor", [
      { value: toFloor("embeddings", "cpuPerRequest"), unit: " ×", ok: atMost(2) }
    ])
  ]
}

export const goalsTableOf = (results: Results): string =>
  [
    "| goal | now | met |",
    "|---|---|---|",
    ...goalsOf(results).map(({ goal, now, met }) => `| ${goal} | ${now} | ${met} |`)
  ].join("\n") + "\n"
