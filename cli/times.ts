/** Reads the times that an operator types. */
import { Option } from "effect"
import { dayMs, dayOf } from "../src/domain/Calendar.ts"
import type { Bounds, Moment } from "../src/admin/records/period.ts"

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

const instant = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/

export const anInstant = "a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"

/** A date (its midnight in UTC) or a time with its zone. */
export const readInstant = (text: string): Option.Option<Date> =>
  isDay(text) || (instant.test(text) && !Number.isNaN(Date.parse(text)))
    ? Option.some(new Date(text))
    : Option.none()

export const aMoment =
  "a time such as 12h, 30d, yesterday, 23:00, 2027-01-31 or 2027-01-31T22:00+01:00 (UTC without a zone)"

const zone = "(Z|[+-]\\d{2}:\\d{2})?"
const clock = new RegExp(`^([01]\\d|2[0-3]):([0-5]\\d)(?::([0-5]\\d))?${zone}$`)
const zoned = /(?:Z|[+-]\d{2}:\d{2})$/

/** `+01:00`, in milliseconds; nothing is UTC. */
const offsetOf = (text = "Z"): number => {
  const [, sign, hours, minutes] = /^([+-])(\d{2}):(\d{2})$/.exec(text) ?? []
  return hours === undefined ? 0 : (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000
}

/** A day, an instant, a lifetime before now or a time of the clock. Days and weeks before now are whole UTC days. */
export const readMoment = (text: string): Option.Option<Moment> => {
  if (text === "today" || text === "yesterday") return Option.some({ daysAgo: text === "today" ? 0 : 1 })
  if (text === "now") return Option.some({ agoMs: 0 })
  if (isDay(text)) return Option.some({ day: text })
  const [, hours, minutes, seconds = "0", offset] = clock.exec(text) ?? []
  if (hours !== undefined) {
    const ms = (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) * 1000 - offsetOf(offset)
    return Option.some({ clockMs: (ms + dayMs) % dayMs })
  }
  const ago = Option.getOrUndefined(readLifetime(text))
  if (ago !== undefined) return Option.some(/[dw]$/.test(text) ? { daysAgo: ago / dayMs } : { agoMs: ago })
  return Option.map(readInstant(zoned.test(text) ? text : `${text}Z`), (at) => ({ at }))
}

/** `2026-11`: its first and its last day. */
export const readMonth = (text: string): Option.Option<Required<Bounds>> => {
  const [, year, month] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? []
  if (year === undefined) return Option.none()
  const last = dayOf(Date.UTC(Number(year), Number(month), 0))
  return Option.some({ since: { day: `${text}-01` }, until: { day: last } })
}
