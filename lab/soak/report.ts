/** What a soak prints beside its figures: recoveries and the memory curve. */
import { processState } from "../../test/support/invariants/processState.ts"
import { type Correction, count } from "../books.ts"
import { percentile } from "../scale/figures.ts"
import type { Happened } from "./weather.ts"

export interface Sample {
  readonly seconds: number
  /** of each replica, MiB; 0 while it is not there */
  readonly rss: readonly [number, number]
  /** of both */
  readonly descriptors: number
}

export const sampleOf = (
  began: number,
  [a, b]: readonly [{ readonly pid: () => number }, { readonly pid: () => number }]
): Sample => {
  const [first, second] = [processState(a.pid()), processState(b.pid())]
  return {
    seconds: Math.round((performance.now() - began) / 1000),
    rss: [Math.round(first?.rssMiB ?? 0), Math.round(second?.rssMiB ?? 0)],
    descriptors: (first?.descriptors ?? 0) + (second?.descriptors ?? 0)
  }
}

/** The most memory that a process which runs now has had at any time, MiB. */
export const peakOf = (replicas: ReadonlyArray<{ readonly pid: () => number }>): number =>
  Math.max(...replicas.map(({ pid }) => processState(pid())?.peakMiB ?? 0))

export const samples = (all: ReadonlyArray<Sample>): string =>
  [
    "Memory (a replica that was killed begins anew)",
    "  seconds  replica 1, MiB  replica 2, MiB  descriptors of both",
    ...all.map(
      ({ descriptors, rss, seconds }) =>
        `  ${String(seconds).padStart(7)}  ${String(rss[0]).padStart(14)}  ${String(rss[1]).padStart(14)}  ${String(descriptors).padStart(19)}`
    ),
    ""
  ].join("\n")

/** The fault that a correction belongs to: the last one that began before it. */
const faultOf = ({ at }: Correction, happened: ReadonlyArray<Happened>): Happened | undefined =>
  happened.findLast(({ beganAt }) => beganAt <= at)

/**
 * Rows that another replica has closed, although no process was paused or cut off from Postgres. Rows can be late for another
 * reason: the machine is too slow.
 */
export const unexplained = (
  corrections: ReadonlyArray<Correction>,
  happened: ReadonlyArray<Happened>
): ReadonlyArray<Correction> =>
  corrections.filter((one) => {
    const part = faultOf(one, happened)?.part
    return one.why === "taken" && (part === undefined || part === "redis" || part === "backend")
  })

/** How many audit rows each fault caused to be corrected, and why. */
export const correctionsByFault = (
  corrections: ReadonlyArray<Correction>,
  happened: ReadonlyArray<Happened>
): string => {
  const byFault = Map.groupBy(corrections, (one) => faultOf(one, happened)?.fault ?? "before all faults")
  return [
    "Corrected audit rows by fault",
    `  ${"fault".padEnd(30)}  closed by another  late`,
    ...[...byFault]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([fault, all]) => {
        const taken = all.filter(({ why }) => why === "taken").length
        return `  ${fault.padEnd(30)}  ${String(taken).padStart(17)}  ${String(all.length - taken).padStart(4)}`
      }),
    ""
  ].join("\n")
}

export const recoveries = (happened: ReadonlyArray<Happened>): string => {
  const byFault = Map.groupBy(happened, ({ fault }) => fault)
  return [
    "Milliseconds from the end of a fault until both replicas answer",
    `  ${"fault".padEnd(30)}  times  median    most`,
    ...[...byFault]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([fault, all]) => {
        const ms = all.map(({ recoveredMs }) => Math.round(recoveredMs)).sort((a, b) => a - b)
        const [median, most] = [percentile(ms, 0.5), ms.at(-1) ?? 0].map((n) => String(n).padStart(6))
        return `  ${fault.padEnd(30)}  ${String(all.length).padStart(5)}  ${median}  ${most}`
      }),
    ""
  ].join("\n")
}

/** The most requests of a key that were admitted in any 60 seconds and cost something: one that was undone has cost nothing. */
export const busiestAnswered = (prefix: string) =>
  count(
    (pg) => pg`
      SELECT coalesce(max(n), 0)::float8 AS n FROM (
        SELECT count(*) OVER (ORDER BY d.admitted_at RANGE BETWEEN CURRENT ROW AND interval '59.999 seconds' FOLLOWING) AS n
        FROM admissions d JOIN audit_log a USING (request_id)
        WHERE a.key_prefix = ${prefix} AND (a.status IN (200, 499) OR a.tokens_in + a.tokens_out > 0)) AS spans`
  )
