/** Reads the times that an operator types. */
import { Effect } from "effect"
import { InvalidValue } from "../src/admin/Errors.ts"

const unitMs = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const
const isUnit = (text: string | undefined): text is keyof typeof unitMs =>
  text !== undefined && Object.hasOwn(unitMs, text)

/** `30d`, `12h`, `45m` or `2w`, in milliseconds. */
export const readLifetime = (text: string, field = "expires-in"): Effect.Effect<number, InvalidValue> => {
  const [, count, unit] = /^(\d{1,6})([mhdw])$/.exec(text) ?? []
  return count !== undefined && isUnit(unit)
    ? Effect.succeed(Number(count) * unitMs[unit])
    : Effect.fail(new InvalidValue({ field, expected: "a time such as 45m, 12h, 30d or 2w" }))
}

const instant = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/

/** A date (its midnight in UTC) or a time with its zone. */
export const readInstant = (text: string): Effect.Effect<Date, InvalidValue> => {
  const date = new Date(instant.test(text) ? text : Number.NaN)
  // Date would turn the 30th of February into a day in March.
  const real = !Number.isNaN(date.getTime()) && (text.length > 10 || date.toISOString().startsWith(text))
  return real
    ? Effect.succeed(date)
    : Effect.fail(
        new InvalidValue({
          field: "expires-at",
          expected: "a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"
        })
      )
}
