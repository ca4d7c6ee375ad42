/**
 * Local midnights at which days, weeks and months end, after days of 23, 23.5, 24 and 25 hours. `part`: of the runs of a property,
 * how many begin before it.
 */
import { makeCalendar } from "../../src/domain/Calendar.ts"

export const midnights = (
  [
    ["UTC", "2026-12-01", 1],
    ["Europe/Berlin", "2027-03-29", 0.3],
    ["America/New_York", "2026-11-02", 0.2],
    ["Australia/Lord_Howe", "2026-10-05", 0.2],
    ["Asia/Kathmandu", "2027-02-01", 0.2]
  ] as const
).map(([zone, date, part]) => {
  const calendar = makeCalendar(zone)
  return { calendar, date, part, at: calendar.instantOf(date) }
})
