/** The client's bound on the length of the answer: `num_predict`, `max_tokens` or `max_completion_tokens`. */
import { Effect } from "effect"
import { BadRequest } from "../../domain/Errors.ts"
import { wholeIn } from "./bounded.ts"

/** Any number an int32 of a client can be; what is too much is decided by `checkMaxTokens`. */
export const MaxTokens = wholeIn([-(2 ** 31), 2 ** 31])

const unbounded = Effect.succeed<number | undefined>(undefined)

/** `undefined`: no bound of the client's own, the cap applies. Negative says the same, as clients of Ollama expect. */
export const checkMaxTokens = (
  field: string,
  value: number | null | undefined,
  cap: number
): Effect.Effect<number | undefined, BadRequest> => {
  if (value === undefined || value === null || value < 0) return unbounded
  return value >= 1 && value <= cap
    ? Effect.succeed(value)
    : Effect.fail(
        new BadRequest({ detail: `${field}: expected a whole number from 1 to ${cap}, or -1 for ${cap}` })
      )
}
