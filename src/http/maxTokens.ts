/** The client's bound on the length of the answer, under whatever name it came (contract §5). */
import { Effect } from "effect"
import { BadRequest } from "../domain/Errors.ts"

const unbounded = Effect.sync((): number | undefined => undefined)

/** `undefined`: no bound of the client's own, the cap applies. Negative is "no bound" on the native surface only. */
export const checkMaxTokens = (
  field: string,
  value: number | null | undefined,
  cap: number,
  negative: "unbounded" | "refused"
): Effect.Effect<number | undefined, BadRequest> => {
  if (value === undefined || value === null) return unbounded
  if (value < 0 && negative === "unbounded") return unbounded
  return value >= 1 && value <= cap
    ? Effect.succeed(value)
    : Effect.fail(new BadRequest({ detail: `${field}: expected a whole number from 1 to ${cap}` }))
}
