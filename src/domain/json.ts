/** Guards for JSON that nobody has decoded yet, where a Schema would cost too much for each token (`bench/frames.ts`). */
import type { Json, JsonObject } from "./Inference.ts"

/** The value of a JSON text; `undefined` when it is none: the caller says what that means. */
export const tryParseJson = (text: string): Json | undefined => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export const isArray = (value: Json | undefined): value is ReadonlyArray<Json> => Array.isArray(value)

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** A whole number, not negative and exact: as nanoseconds up to 104 days. */
export const isCount = (value: Json | undefined): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0

/**
 * Levels of a whole request. `JSON.parse` reads any depth, but `JSON.stringify` and other recursive functions would overflow
 * the stack.
 */
export const requestDepth = 64

/** Levels of the arguments of a tool call: a client must be able to send them back in its next request. */
export const answerDepth = requestDepth - 8

/** Whether `value` has more than `levels` levels. It does not look deeper than that. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  return Object.values(value).some((inner) => isDeeperThan(inner, levels - 1))
}
