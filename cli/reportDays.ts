/** Reads the days of a report. */
import { Effect } from "effect"
import { InvalidValue } from "../src/admin/Errors.ts"
import type { ReportDay } from "../src/admin/records/Records.ts"

/** `2026-11-22`, or `30d`: the UTC day 30 days ago. */
export const readDay = (field: string, text: string): Effect.Effect<ReportDay, InvalidValue> => {
  const [, days] = /^(\d{1,5})d$/.exec(text) ?? []
  if (days !== undefined) return Effect.succeed({ daysAgo: Number(days) })
  const date = new Date(/^\d{4}-\d{2}-\d{2}$/.test(text) ? text : Number.NaN)
  // Date would turn the 30th of February into a day in March.
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)
    ? Effect.succeed({ day: text })
    : Effect.fail(
        new InvalidValue({ field, expected: "a day such as 2027-01-31, or 30d for the day 30 days ago" })
      )
}
