/**
 * How a field of a request is declared: with a bound on what it takes, and with a description that `openapi.json` shows.
 * Fields that several endpoints have stand here too.
 */
import { Effect, Schema } from "effect"
import { BadRequest } from "../../domain/Errors.ts"

/** Ollama takes `null` as absent, so the gateway does too (docs/protocol.md, "Transport"). */
export const absentable = <S extends Schema.Constraint>(schema: S, description?: string) =>
  Schema.optionalKey(Schema.NullOr(schema).annotate(description === undefined ? {} : { description }))

/** Least and most, both allowed. */
export type Range = readonly [minimum: number, maximum: number]

export const numberIn = ([minimum, maximum]: Range) =>
  Schema.Finite.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a number from ${minimum} to ${maximum}` })
  )

export const wholeIn = ([minimum, maximum]: Range) =>
  Schema.Int.check(
    Schema.isBetween({ minimum, maximum }, { expected: `a whole number from ${minimum} to ${maximum}` })
  )

/** At most `count` texts of at most `length` characters. */
export const textsIn = (count: number, length: number) =>
  Schema.Array(Schema.String.check(Schema.isMaxLength(length))).check(Schema.isMaxLength(count))

/** A text of this form. Effect writes only patterns with the `u` flag to JSON Schema; these need no flag to be the same. */
export const isFormed = (pattern: RegExp, expected: string) =>
  Schema.isPattern(pattern, { expected, toJsonSchema: () => ({ pattern: pattern.source }) })

export const ModelName = Schema.NonEmptyString.annotate({
  description: "a name from /api/tags; `:latest` may be left out"
})

export const maxTopLogprobs = 20

export const TopLogprobs = wholeIn([0, maxTopLogprobs])

/** OpenAI's own bound. Every text is a call of its own inside the model server. */
export const maxInputs = 2048

/** No model makes vectors so long; the model server cuts them to this. */
export const maxDimensions = 65_536

export const Texts = Schema.Array(Schema.String).check(Schema.isMaxLength(maxInputs))

/** What `NUM_PREDICT_CAP` is unless it is set. */
const defaultCap = 4096

/**
 * The client's bound on the length of its answer: any number that an int32 of a client can be. `checkMaxTokens` decides
 * what is too much; `openapi.json` shows the bound of the default settings.
 */
export const MaxTokens = wholeIn([-(2 ** 31), 2 ** 31]).annotate({ maximum: defaultCap, not: { const: 0 } })

export const maxTokensText = `at most NUM_PREDICT_CAP (default ${defaultCap}); absent or negative means the cap`

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
