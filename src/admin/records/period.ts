/** The period of a report or of a list. Days are UTC days. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { dayMs, dayOf } from "../../domain/Calendar.ts"
import { oneRow } from "../../infra/rows.ts"
import { mustBe } from "../Errors.ts"

/** A point in time, as operators say it. */
export type Moment =
  /** a whole day, as a date (`2026-11-22`) or as the number of days before today */
  | { readonly day: string }
  | { readonly daysAgo: number }
  /** an instant: before now, exact, or the latest time of a clock (ms of the UTC day) before now and before the end of the period */
  | { readonly agoMs: number }
  | { readonly at: Date }
  | { readonly clockMs: number }

export interface Period {
  readonly from: Date
  /** not included */
  readonly to: Date
  /** the first and the last day, when it has whole days only */
  readonly days: { readonly since: string; readonly until: string } | undefined
}

/** What an operator says of a period. `until` includes its day. */
export interface Bounds {
  readonly since?: Moment | undefined
  readonly until?: Moment | undefined
}

const startOf = (moment: Moment, now: number): number => {
  if ("day" in moment) return Date.parse(moment.day)
  if ("daysAgo" in moment) return (Math.floor(now / dayMs) - moment.daysAgo) * dayMs
  if ("agoMs" in moment) return now - moment.agoMs
  if ("at" in moment) return moment.at.getTime()
  const today = Math.floor(now / dayMs) * dayMs + moment.clockMs
  return today > now ? today - dayMs : today
}

const isDay = (moment: Moment): boolean => "day" in moment || "daysAgo" in moment

/** Year 1970 to year 9999: what ids and dates can say. */
const within = (ms: number): number => Math.min(Math.max(0, ms), 253_370_764_800_000)

/** `since` is a default when the operator says nothing; undefined: the first of the month of the period's last day. */
export const periodOf = (
  now: Date,
  { since, until = { daysAgo: 0 } }: Bounds,
  fallback?: Moment
): Period | undefined => {
  const start = (moment: Moment) => within(startOf(moment, now.getTime()))
  const to = isDay(until) ? start(until) + dayMs : start(until)
  const first = since ?? fallback ?? { day: `${dayOf(to - 1).slice(0, 7)}-01` }
  const from = within(startOf(first, "clockMs" in first ? Math.min(now.getTime(), to - 1) : now.getTime()))
  if (from >= to) return undefined
  const days = isDay(first) && isDay(until) ? { since: dayOf(from), until: dayOf(to - dayMs) } : undefined
  return { from: new Date(from), to: new Date(to), days }
}

/** The period that an operator means, by the clock of the database. */
export const readPeriod = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bounds: Bounds,
  fallback?: Moment
) {
  const { now } = yield* oneRow({ now: Schema.Date })(sql`SELECT now() AS now`)
  return periodOf(now, bounds, fallback) ?? (yield* mustBe("since", "a time before --until"))
})
