/** Reads the times that an operator types. */
import { Option } from "effect"
import { dateNumbered, dayMs, monthAfter, numberOf } from "../src/domain/Calendar.ts"
import type { Bounds, Deadline, Moment } from "../src/admin/period.ts"

const unitMs: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: dayMs, w: 604_800_000 }

export const aLifetime = "a time such as 45m, 12h, 30d or 2w"

/** `30d`, `12h`, `45m` or `2w`, in milliseconds. */
export const readLifetime = (text: string): Option.Option<number> => {
  const [, count, unit = ""] = /^(\d{1,6})([mhdw])$/.exec(text) ?? []
  return count === undefined ? Option.none() : Option.some(Number(count) * (unitMs[unit] ?? 0))
}

/** Date would turn the 30th of February into a day in March. */
const isDay = (text: string): boolean =>
  /^\d{4}-\d{2}-\d{2}$/.test(text) && new Date(text).toJSON()?.startsWith(text) === true

const zone = "(Z|[+-]\\d{2}:\\d{2})?"
const clock = new RegExp(`^(?:([01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d)?)${zone}$`)
const instant = new RegExp(`^(\\d{4}-\\d{2}-\\d{2})T\\d{2}:\\d{2}(?::\\d{2}(?:\\.\\d{1,3})?)?${zone}$`)

/** An instant: a time of the clock, or a date with a time; the zone is the gateways' where there is none. */
const readInstant = (text: string) => {
  const [, hours, offset] = clock.exec(text) ?? []
  if (hours !== undefined)
    return Option.some({
      clock: offset === undefined ? text : text.slice(0, -offset.length),
      zone: offset === "Z" ? "UTC" : offset
    })
  const [, date, of] = instant.exec(text) ?? []
  if (date === undefined || !isDay(date) || Number.isNaN(Date.parse(text))) return Option.none()
  return Option.some(of === undefined ? { local: text } : { at: new Date(text) })
}

export const aMoment = "a time such as 12h, 30d, yesterday, 23:00, 2027-01-31 or 2027-01-31T22:00+01:00"

/** A day, an instant, a lifetime before now or a time of the clock. Days and weeks before now are whole days. */
export const readMoment = (text: string): Option.Option<Moment> => {
  if (text === "today" || text === "yesterday") return Option.some({ daysAgo: text === "today" ? 0 : 1 })
  if (text === "now") return Option.some({ agoMs: 0 })
  if (isDay(text)) return Option.some({ day: text })
  const ago = Option.getOrUndefined(readLifetime(text))
  if (ago !== undefined) return Option.some(/[dw]$/.test(text) ? { daysAgo: ago / dayMs } : { agoMs: ago })
  return readInstant(text)
}

export const aDeadline =
  "a time in the future: fri, tomorrow, 18:00, 3d, 2027-01-31 (its end) or 2027-01-31T18:00+01:00"

const weekdays = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

/** The end of a day, by its date or its name, an instant, or a lifetime from now. */
export const readDeadline = (text: string): Option.Option<Deadline> => {
  const word = text.toLowerCase()
  if (word === "today" || word === "tomorrow") return Option.some({ daysAhead: word === "today" ? 0 : 1 })
  const weekday = 1 + weekdays.findIndex((name) => word === name || word === name.slice(0, 3))
  if (weekday > 0) return Option.some({ weekday })
  if (isDay(text)) return Option.some({ day: text })
  const inMs = Option.getOrUndefined(readLifetime(text))
  return inMs === undefined ? readInstant(text) : Option.some({ inMs })
}

/** `2026-11`, its first and its last day; or the month before this one, or this one. */
export const readMonth = (text: string): Option.Option<Required<Bounds>> => {
  const monthsAgo = ["this", "last"].indexOf(text)
  if (monthsAgo >= 0) return Option.some({ since: { monthsAgo }, until: { monthsAgo } })
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(text)) return Option.none()
  const last = dateNumbered(numberOf(monthAfter(text, 1)) - 1)
  return Option.some({ since: { day: `${text}-01` }, until: { day: last } })
}
