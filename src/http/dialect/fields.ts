/**
 * Helpers to declare a field of a request, with a bound and a description for `openapi.json`. It also has the fields
 * that several endpoints share.
 */
import { Predicate, Result, Schema } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { DecodedRequest, Json, JsonObject } from "../../domain/Inference.ts"
import { maxModelName } from "../../domain/Model.ts"
import { isBase64 } from "./base64.ts"
import { expectedImage as expected, isImage, maxImages } from "./images.ts"

/** Ollama takes `null` as absent, so the gateway does too (docs/protocol.md, "Transport"). */
export const absentable = <S extends Schema.Constraint>(schema: S, description?: string) =>
  Schema.optionalKey(Schema.NullOr(schema).annotate(description === undefined ? {} : { description }))

const isAnyObject = (value: unknown): value is JsonObject =>
  Predicate.isObject(value) && !Array.isArray(value)

/** An object in which nothing is looked at, because it came from `JSON.parse`: looking costs as much as parsing. */
export const AnyObject = Schema.declare(isAnyObject, { expected: "object", type: "object" })

/** Any value, not looked at for the same reason. */
export const AnyJson = Schema.declare((value): value is Json => value !== undefined, { expected: "a value" })

/** Minimum and maximum, both inclusive. */
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

/**
 * A text that matches the pattern. Effect writes only patterns with the `u` flag to JSON Schema; these patterns mean
 * the same without it.
 */
export const isFormed = (pattern: RegExp, expected: string) =>
  Schema.isPattern(pattern, { expected, toJsonSchema: () => ({ pattern: pattern.source }) })

const isShortName = Schema.isMaxLength(maxModelName, { expected: `at most ${maxModelName} characters` })

export const ModelName = Schema.NonEmptyString.check(isShortName).annotate({
  description: "a name from /api/tags; `:latest` may be left out"
})

/** Where a name may be "", which is as good as none. */
export const OptionalModelName = Schema.String.check(isShortName)

export const maxTopLogprobs = 20

export const TopLogprobs = wholeIn([0, maxTopLogprobs])

/** The bound of OpenAI. Each text is one call inside the model server. */
export const maxInputs = 2048

/** No model has vectors of this length; the model server cuts them to it. */
export const maxDimensions = 65_536

export const Texts = Schema.Array(Schema.String).check(Schema.isMaxLength(maxInputs))

/** The default of `NUM_PREDICT_CAP`. */
const defaultCap = 65_536

/**
 * The client's bound on the length of its answer: any int32. `boundMaxTokens` refuses values above the cap;
 * `openapi.json` shows the bound of the default settings.
 */
export const MaxTokens = wholeIn([-(2 ** 31), 2 ** 31]).annotate({ maximum: defaultCap, not: { const: 0 } })

export const maxTokensText = `at most NUM_PREDICT_CAP (default ${defaultCap}); absent or negative means the cap`

/** A client's bound on its output, as a part of the decoded request. */
type OutputBound = Pick<DecodedRequest, "loweredTo" | "maxTokens">

/**
 * `maxTokens` is undefined when the client sets no bound; then the cap applies. A negative value means the same, as in Ollama. A
 * bound above the cap is refused; with `lowers` it becomes the cap, and `X-Max-Tokens` says so.
 */
export const boundMaxTokens = (
  field: string,
  value: number | null | undefined,
  cap: number,
  lowers = false
): Decided<OutputBound> => {
  if (value === undefined || value === null || value < 0) return Result.succeed({ maxTokens: undefined })
  if (value > cap && lowers) return Result.succeed({ maxTokens: cap, loweredTo: cap })
  return value >= 1 && value <= cap
    ? Result.succeed({ maxTokens: value })
    : refuse(`${field}: expected a whole number from 1 to ${cap}, or -1 for ${cap}`)
}

export const Effort = Schema.Literals(["none", "minimal", "low", "medium", "high", "max", "xhigh", "ultra"])

/** Efforts that Ollama has under another name, or not. */
const otherEfforts: { readonly [effort: string]: Json } = {
  none: false,
  minimal: "low",
  xhigh: "max",
  ultra: "max"
}

/** How long a model is asked to think: OpenAI's effort as `think` of Ollama. */
export const thinkOf = (effort: typeof Effort.Type | null | undefined): Json | undefined =>
  effort === undefined || effort === null ? undefined : (otherEfforts[effort] ?? effort)

const base64 = "base64 without a data: prefix"

/** A pattern that stands in the document of the API and is not used here: `isBase64` says why. */
const documented = (pattern: string) => ({ toJsonSchema: () => ({ pattern }) })

/** An image in the form of the backend. */
export const Image = Schema.String.check(
  Schema.makeFilter(isBase64, { expected: base64, ...documented("^[A-Za-z0-9+/]*={0,2}$") }).abort(),
  Schema.makeFilter((text: string) => text.length % 4 === 0, { expected: base64 }).abort(),
  Schema.makeFilter(isImage, { expected })
)

export const Images = Schema.Array(Image).check(Schema.isMaxLength(maxImages))

const dataUrl = /^data:(?:image\/(?:jpeg|jpg|png|webp))?;base64,/

/** The base64 in a data URL of an image. */
export const base64Of = (url: string): string | undefined => {
  const start = dataUrl.exec(url)?.[0]
  const text = start === undefined ? "" : url.slice(start.length)
  return /^[^=]/.test(text) && isBase64(text) ? text : undefined
}

/** An image as clients of the OpenAI surface send it. */
export const ImageUrl = Schema.String.check(
  Schema.makeFilter((url: string) => base64Of(url) !== undefined, {
    expected: "a data: URL of a base64 jpeg, png or webp image",
    ...documented(`${dataUrl.source}([A-Za-z0-9+/]+={0,2})$`)
  }).abort(),
  Schema.makeFilter((url: string) => isImage(base64Of(url) ?? ""), { expected })
)
