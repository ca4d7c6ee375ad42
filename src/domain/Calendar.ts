/**
 * The calendar of the budget periods, in one time zone (`TIMEZONE`). A period is a half-open interval of instants: a day has 23 or
 * 25 hours where clocks are changed. A request belongs to the periods of the day in which it was admitted. Its rows and counters
 * are named by the date of that day, so what is booked stays where it is when the zone changes.
 */
import { Context, DateTime, Option, Record } from "effect"
import type { Period } from "./Limits.ts"
import type { CounterName } from "./Reservation.ts"

export const dayMs = 86_400_000

/** Dates such as `2026-11-23`; `to` is not included. */
export interface Dates {
  readonly from: string
  readonly to: string
}

/** A period that ends. */
export type Span = Exclude<Period, "total">

/** A day of a zone, with the week and the month that it is in. */
export interface Day {
  /** of its date, from 1970-01-01 */
  readonly number: number
  readonly date: string
  /** its first instant, epoch ms */
  readonly start: number
  readonly dates: { readonly [P in Span]: Dates }
  /** the first instant after each period, epoch ms */
  readonly ends: { readonly [P in Span]: number }
  readonly counters: { readonly [P in Period]: CounterName }
}

export interface Calendar {
  /** IANA name */
  readonly zone: string
  /** Of a local date or time, `2026-11-23` or `2026-11-23T18:00`: an instant (epoch ms), the earlier of two, or the end of the gap. */
  readonly instantOf: (local: string) => number
  readonly dayAt: (instant: number) => Day
  readonly dayNumbered: (number: number) => Day
  /** `2026-11-23 18:00:07 +01:00`, or to the minute; the end of a day is 24:00 for `end` */
  readonly textOf: (instant: number, form?: "second" | "minute" | "end") => string
}

export const dateNumbered = (number: number): string => new Date(number * dayMs).toISOString().slice(0, 10)
export const numberOf = (date: string): number => Date.parse(date) / dayMs

/** 1 is Monday. 1970-01-01 was a Thursday. */
export const weekdayOf = (number: number): number => ((((number + 3) % 7) + 7) % 7) + 1

/** The first of a month that is `months` after that of a date. */
export const monthAfter = (date: string, months: number): string =>
  new Date(Date.UTC(Number(date.slice(0, 4)), Number(date.slice(5, 7)) - 1 + months))
    .toISOString()
    .slice(0, 10)

const datesOf = (number: number): Day["dates"] => {
  const [date, monday] = [dateNumbered(number), number + 1 - weekdayOf(number)]
  return {
    day: { from: date, to: dateNumbered(number + 1) },
    week: { from: dateNumbered(monday), to: dateNumbered(monday + 7) },
    month: { from: monthAfter(date, 0), to: monthAfter(date, 1) }
  }
}

/** Days that are kept: requests of yesterday end after midnight. */
const kept = 4

/** `zone`: an IANA name, or an offset such as `+01:00`. */
export const makeCalendar = (zone: string): Calendar => {
  const timeZone = Option.getOrThrow(DateTime.zoneFromString(zone))
  const zoned = (instant: number) => DateTime.makeZonedUnsafe(instant, { timeZone })
  const instantOf = (local: string): number =>
    DateTime.toEpochMillis(DateTime.makeZonedUnsafe(local, { timeZone, adjustForTimeZone: true }))
  const make = (number: number): Day => {
    const dates = datesOf(number)
    return {
      number,
      date: dates.day.from,
      start: instantOf(dates.day.from),
      dates,
      ends: Record.map(dates, ({ to }) => instantOf(to)),
      counters: {
        day: dates.day.from,
        week: `w${dates.week.from}`,
        month: dates.month.from.slice(0, 7),
        total: "total"
      }
    }
  }
  let days: ReadonlyArray<Day> = []
  const dayNumbered = (number: number): Day => {
    const known = days.find((day) => day.number === number)
    if (known !== undefined) return known
    const made = make(number)
    days = [made, ...days].slice(0, kept)
    return made
  }
  const isIn = ({ ends, start }: Day, instant: number) => instant >= start && instant < ends.day
  return {
    zone,
    instantOf,
    dayNumbered,
    dayAt: (instant) => {
      for (let i = 0; i < days.length; i += 1) {
        const day = days[i]
        if (day !== undefined && isIn(day, instant)) return day
      }
      const number = numberOf(DateTime.formatIsoDate(zoned(instant)))
      const day = dayNumbered(number)
      // Where clocks go back over midnight, a date comes, goes and comes again: its day begins with its first midnight.
      return isIn(day, instant) ? day : dayNumbered(instant < day.start ? number - 1 : number + 1)
    },
    textOf: (instant, form = "minute") => {
      const at = zoned(instant)
      const local = DateTime.toDate(at).toISOString()
      const offset = DateTime.zonedOffsetIso(at)
      const [date, clock] = [local.slice(0, 10), local.slice(11, form === "second" ? 19 : 16)]
      const text =
        form === "end" && clock === "00:00" ? `${dateNumbered(numberOf(date) - 1)} 24:00` : `${date} ${clock}`
      return `${text} ${offset === "+00:00" ? "UTC" : offset}`
    }
  }
}

export const utc = makeCalendar("UTC")

/** That of `TIMEZONE`, which the gateways of a database share (`replicas/timeZone.ts`). A layer asks for it when it is made. */
export const TimeZone = Context.Reference<Calendar>("tollgate/domain/TimeZone", { defaultValue: () => utc })

/** A `total` budget never ends. `Retry-After` and `X-Budget-Reset` need a number all the same. */
const totalRetryAfterS = 86_400

/** Whole seconds from `now` to the end of a period of `day`; 0 when it has ended. */
export const secondsToEndOf = (period: Period, { ends }: Day, now: number): number =>
  period === "total" ? totalRetryAfterS : Math.max(0, Math.ceil((ends[period] - now) / 1000))
