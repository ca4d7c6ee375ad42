/** Guards for JSON that nobody has decoded yet, where a Schema would cost too much for each token (`bench/frames.ts`). */
import type { Json, JsonObject } from "./Inference.ts"

/** The value of a JSON text; `undefined` when it is none: the caller says what that means. */
export const parseJson = (text: string): Json | undefined => {
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
