/**
 * How deep JSON may be. `JSON.parse` reads any depth, but whatever walks the value afterwards, `JSON.stringify` first of
 * all, uses the stack.
 */
import type { Json } from "./Inference.ts"

/** Levels of a whole request. */
export const requestDepth = 64

/** Levels of what a backend made up, as arguments of a tool call: a client can send them back in its next request. */
export const answerDepth = requestDepth - 8

/** Whether `value` has more than `levels` levels. Looks no deeper than that. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  return Object.values(value).some((inner) => isDeeperThan(inner, levels - 1))
}
