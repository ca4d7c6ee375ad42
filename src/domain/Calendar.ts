/**
 * UTC calendar of the budget periods. A request belongs to the periods in which it was admitted, so every function takes
 * the instant as an argument and reads no clock and no time zone.
 */
import type { Period } from "./Limits.ts"
import type { CounterName } from "./Reservation.ts"

export const dayMs = 86_400_000

/** The number of the UTC day that holds an instant (epoch ms). */
export const dayNumber = (epochMs: number): number => Math.floor(epochMs / dayMs)

/** The counters of a request that was admitted at an instant (epoch ms): `2026-11-21`, `2026-11` and `total`. */
export const counterNamesAt = (epochMs: number): { readonly [P in Period]: CounterName } => {
  const day = new Date(epochMs).toISOString().slice(0, 10)
  return { day, month: day.slice(0, 7), total: "total" }
}

export const dayOf = (epochMs: number): string => counterNamesAt(epochMs).day

export const monthOf = (epochMs: number): string => counterNamesAt(epochMs).month

/** First instant (epoch ms) after the period that holds `epochMs`; `undefined` for `total`. */
export const endOf = (period: Period, epochMs: number): number | undefined => {
  switch (period) {
    case "day":
      return (dayNumber(epochMs) + 1) * dayMs
    case "month": {
      const day = new Date(epochMs)
      return Date.UTC(day.getUTCFullYear(), day.getUTCMonth() + 1, 1)
    }
    case "total":
      return undefined
  }
}

/** A `total` budget never ends. `Retry-After` and `X-Budget-Reset` need a number all the same. */
export const totalRetryAfterS = 86_400

/** Whole seconds from `now` to the end of the period that holds `instant` (epoch ms); 0 when it has ended. */
export const secondsFrom = (now: number, period: Period, instant: number): number => {
  const end = endOf(period, instant)
  return end === undefined ? totalRetryAfterS : Math.max(0, Math.ceil((end - now) / 1000))
}

/** Whole seconds, at least 1, until `period` ends. */
export const secondsToEndOf = (period: Period, epochMs: number): number => {
  const end = endOf(period, epochMs)
  return end === undefined ? totalRetryAfterS : Math.max(1, Math.ceil((end - epochMs) / 1000))
}
