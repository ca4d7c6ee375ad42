/** The period of a report or of a list, and the end of what an operator gives for a time. Days are those of the gateways' zone. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import {
  type Calendar,
  type Dates,
  dateNumbered,
  type Day,
  dayMs,
  makeCalendar,
  monthAfter,
  numberOf,
  weekdayOf
} from "../domain/Calendar.ts"
import { oneRow } from "../infra/rows.ts"
import { mustBe } from "./Errors.ts"

/** An instant, as operators say it: exact, a local time such as `2026-11-22T18:00`, or a time of the clock, of the zone or of an offset. */
type Instant =
  | { readonly at: Date }
  | { readonly local: string }
  | { readonly clock: string; readonly zone?: string | undefined }

/** A whole day or month: a date, or days or months before this one. */
type Days = { readonly day: string } | { readonly daysAgo: number } | { readonly monthsAgo: number }

/** A point in time in a period. */
export type Moment = Instant | Days | { readonly agoMs: number }

/** An end in the future. A day is included; a day of the week, from 1 for Monday, is the next one, or today. */
export type Deadline =
  | Instant
  | { readonly day: string }
  | { readonly daysAhead: number }
  | { readonly weekday: number }
  | { readonly inMs: number }

export interface Period {
  readonly from: Date
  /** not included */
  readonly to: Date
  /** the first and the last day, when it has whole days only */
  readonly days: { readonly since: string; readonly until: string } | undefined
  /** its ends as texts; the last day is included, an instant is not */
  readonly ends: readonly [since: string, until: string]
  readonly zone: string
}

/** What an operator says of a period. `until` includes its day. */
export interface Bounds {
  readonly since?: Moment | undefined
  readonly until?: Moment | undefined
}

const isDays = (moment: Moment): moment is Days =>
  "day" in moment || "daysAgo" in moment || "monthsAgo" in moment

/** The first day of the year 9999. Later days have dates of another form. */
const lastDay = numberOf("9999-01-01")

const datesOf = (moment: Days, { date, number }: Day): Dates => {
  const from = (day: number): Dates => {
    const first = Math.min(Math.max(0, day), lastDay)
    return { from: dateNumbered(first), to: dateNumbered(first + 1) }
  }
  if ("day" in moment) return from(numberOf(moment.day))
  if ("daysAgo" in moment) return from(number - moment.daysAgo)
  return { from: monthAfter(date, -moment.monthsAgo), to: monthAfter(date, 1 - moment.monthsAgo) }
}

/** Of a time of the clock, that of the day which holds `near`, moved by some days. */
const instantOf = (moment: Instant, near: number, calendar: Calendar, days = 0): number => {
  if ("at" in moment) return moment.at.getTime()
  if ("local" in moment) return calendar.instantOf(moment.local)
  const { dayAt, instantOf } = moment.zone === undefined ? calendar : makeCalendar(moment.zone)
  return instantOf(`${dateNumbered(dayAt(near).number + days)}T${moment.clock}`)
}

/** What ids and dates can say. */
const within = (ms: number): number => Math.min(Math.max(0, ms), lastDay * dayMs)

/**
 * `since` is a default when the operator says nothing; undefined: the first of the month of the period's last day. An `until` that is
 * not over yet is today or now. A time of the clock is the latest one.
 */
export const periodOf = (
  now: number,
  { since, until = { daysAgo: 0 } }: Bounds,
  calendar: Calendar,
  fallback?: Moment
): Period | undefined => {
  const today = calendar.dayAt(now)
  const endOf = (moment: Moment): number => {
    if ("agoMs" in moment) return now - moment.agoMs
    if (!isDays(moment)) return Math.min(now, instantOf(moment, now, calendar))
    return Math.min(today.ends.day, calendar.instantOf(datesOf(moment, today).to))
  }
  const to = within(endOf(until))
  const last = calendar.dayAt(to - 1)
  const startOf = (moment: Moment): number => {
    if ("agoMs" in moment) return now - moment.agoMs
    if (isDays(moment)) return calendar.instantOf(datesOf(moment, today).from)
    const near = Math.min(now, to - 1)
    const start = instantOf(moment, near, calendar)
    return "clock" in moment && start > near ? instantOf(moment, near, calendar, -1) : start
  }
  const first = since ?? fallback ?? { day: last.dates.month.from }
  const from = within(startOf(first))
  if (from >= to) return undefined
  const days =
    isDays(first) && isDays(until) ? { since: calendar.dayAt(from).date, until: last.date } : undefined
  const ends =
    days === undefined
      ? ([calendar.textOf(from), calendar.textOf(to)] as const)
      : ([days.since, days.until] as const)
  return { from: new Date(from), to: new Date(to), days, ends, zone: calendar.zone }
}

/** The first instant after what an operator says, epoch ms. A time of the clock is the next one. */
export const deadlineOf = (now: number, deadline: Deadline, calendar: Calendar): number => {
  const { number } = calendar.dayAt(now)
  const endOf = (day: number) => calendar.instantOf(dateNumbered(Math.min(day, lastDay) + 1))
  if ("day" in deadline) return endOf(numberOf(deadline.day))
  if ("daysAhead" in deadline) return endOf(number + deadline.daysAhead)
  if ("weekday" in deadline) return endOf(number + ((deadline.weekday - weekdayOf(number) + 7) % 7))
  if ("inMs" in deadline) return now + deadline.inMs
  const at = instantOf(deadline, now, calendar)
  return "clock" in deadline && at <= now ? instantOf(deadline, now, calendar, 1) : at
}

const nowOf = oneRow({ now: Schema.Finite })

/** By the clock of the database, epoch ms. */
export const readNow = (sql: SqlClient.SqlClient) =>
  Effect.map(nowOf(sql`SELECT (extract(epoch FROM now()) * 1000)::float8 AS now`), ({ now }) => now)

/** The period that an operator means. */
export const readPeriod = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bounds: Bounds,
  calendar: Calendar,
  fallback?: Moment
) {
  const period = periodOf(yield* readNow(sql), bounds, calendar, fallback)
  return period ?? (yield* mustBe("since", "a time before --until"))
})
