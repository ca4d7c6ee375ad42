/** Reads the times that an operator types. */
import { Option } from "effect"
import type { ReportDay } from "../src/admin/records/Records.ts"

const unitMs: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

export const aLifetime = "a time such as 45m, 12h, 30d or 2w"

/** `30d`, `12h`, `45m` or `2w`, in milliseconds. */
export const readLifetime = (text: string): Option.Option<number> => {
  const [, count, unit = ""] = /^(\d{1,6})([mhdw])$/.exec(text) ?? []
  return count === undefined ? Option.none() : Option.some(Number(count) * (unitMs[unit] ?? 0))
}

/** Date would turn the 30th of February into a day in March. */
const isDay = (text: string): boolean =>
  /^\d{4}-\d{2}-\d{2}$/.test(text) && new Date(text).toJSON()?.startsWith(text) === true

const instant = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/

export const anInstant = "a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"

/** A date (its midnight in UTC) or a time with its zone. */
export const readInstant = (text: string): Option.Option<Date> =>
  isDay(text) || (instant.test(text) && !Number.isNaN(Date.parse(text)))
    ? Option.some(new Date(text))
    : Option.none()

export const aDay = "a day such as 2027-01-31, or 30d for the day 30 days ago"

/** `2026-11-22`, or `30d`: the UTC day 30 days ago. */
export const readDay = (text: string): Option.Option<ReportDay> => {
  const [, days] = /^(\d{1,5})d$/.exec(text) ?? []
  if (days !== undefined) return Option.some({ daysAgo: Number(days) })
  return isDay(text) ? Option.some({ day: text }) : Option.none()
}
