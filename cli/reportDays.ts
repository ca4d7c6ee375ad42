/** Reads the days of a report. */
import { Clock, Effect } from "effect"
import { InvalidValue } from "../src/admin/Errors.ts"

/** `2026-11-22`, or `30d`: the UTC day 30 days ago. */
export const readDay = Effect.fnUntraced(function* (field: string, text: string) {
  const wrong = new InvalidValue({
    field,
    expected: "a day such as 2027-01-31, or 30d for the day 30 days ago"
  })
  const [, days] = /^(\d{1,5})d$/.exec(text) ?? []
  if (days !== undefined) {
    const now = yield* Clock.currentTimeMillis
    return new Date(now - Number(days) * 86_400_000).toISOString().slice(0, 10)
  }
  const date = new Date(/^\d{4}-\d{2}-\d{2}$/.test(text) ? text : Number.NaN)
  // Date would turn the 30th of February into a day in March.
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text) ? text : yield* wrong
})
