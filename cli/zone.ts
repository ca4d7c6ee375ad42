/** The calendar of the gateways, for what prints a time. It is read when a time is printed. */
import { Context, Effect, type Scope } from "effect"
import type { Calendar } from "../src/domain/Calendar.ts"

export class Zone extends Context.Service<Zone, Effect.Effect<Calendar, Error, Scope.Scope>>()(
  "tollgate/cli/Zone"
) {}

/** Times as they are printed. */
export const times = Effect.map(
  Effect.flatten(Zone),
  ({ textOf }) =>
    (date: Date, form?: Parameters<typeof textOf>[1]) =>
      textOf(date.getTime(), form)
)
