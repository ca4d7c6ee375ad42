/** Guards for JSON values, where a Schema costs too much for each token (`bench/frames.ts`). */
import type { Json, JsonObject } from "./Inference.ts"

/** Parses a JSON text. Returns `undefined` when it is not JSON. */
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

/** Whether `value` is a safe integer of at least 0. In nanoseconds that is up to 104 days. */
export const isCount = (value: Json | undefined): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0

/**
 * Maximal levels of a request. `JSON.parse` reads any depth, but `JSON.stringify` and other recursive functions would
 * overflow the stack.
 */
export const requestDepth = 64

/** Maximal levels of the arguments of a tool call, so that a client can send them back in its next request. */
export const answerDepth = requestDepth - 8

/** Whether `value` has more than `levels` levels. It does not look deeper than that. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  return Object.values(value).some((inner) => isDeeperThan(inner, levels - 1))
}
