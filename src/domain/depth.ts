/**
 * The maximal depth of JSON. `JSON.parse` reads any depth, but `JSON.stringify` and other recursive functions would
 * overflow the stack.
 */
import type { Json } from "./Inference.ts"

/** Levels of a whole request. */
export const requestDepth = 64

/** Levels of the arguments of a tool call: a client must be able to send them back in its next request. */
export const answerDepth = requestDepth - 8

/** Whether `value` has more than `levels` levels. It does not look deeper than that. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  return Object.values(value).some((inner) => isDeeperThan(inner, levels - 1))
}
