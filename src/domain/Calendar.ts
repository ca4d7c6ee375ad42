/**
 * UTC calendar of the budget periods. A request belongs to the periods in which it was admitted, so every function takes
 * the instant as an argument and reads no clock and no time zone.
 */
import type { Period } from "./Limits.ts"

const dayMs = 86_400_000

/** The day of the last call: consecutive calls usually have the same day. */
let last = { number: Number.NaN, name: "" }

/** `2026-11-21` for an instant in milliseconds since the epoch. */
export const dayOf = (epochMs: number): string => {
  const number = Math.floor(epochMs / dayMs)
  if (number !== last.number) last = { number, name: new Date(epochMs).toISOString().slice(0, 10) }
  return last.name
}

/** `2026-11` for an instant in milliseconds since the epoch. */
export const monthOf = (epochMs: number): string => dayOf(epochMs).slice(0, 7)

/** First instant (epoch ms) after the period that holds `epochMs`; `undefined` for `total`. */
export const endOf = (period: Period, epochMs: number): number | undefined => {
  switch (period) {
    case "day":
      return (Math.floor(epochMs / dayMs) + 1) * dayMs
    case "month": {
      const at = new Date(epochMs)
      return Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1)
    }
    case "total":
      return undefined
  }
}

/** A `total` budget never resets. `Retry-After` needs a number all the same. */
export const totalRetryAfterS = 86_400

/** Whole seconds, at least 1, until `period` ends. */
export const secondsToEndOf = (period: Period, epochMs: number): number => {
  const end = endOf(period, epochMs)
  return end === undefined ? totalRetryAfterS : Math.max(1, Math.ceil((end - epochMs) / 1000))
}
