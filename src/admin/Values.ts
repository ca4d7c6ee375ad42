/** The values that an operator may give, each with the text of its error message. */
import { Effect, Predicate, Record, Schema, SchemaIssue } from "effect"
import { dayMs } from "../domain/Calendar.ts"
import { scopes } from "../domain/Caller.ts"
import { redactKeys } from "../domain/Key.ts"
import {
  eachUserFields,
  isModelName,
  KeyChange,
  type KeyAttributes,
  keyTexts,
  type AttributeText,
  TenantChange,
  tenantTexts
} from "../domain/attributes.ts"
import { isPrintable } from "../domain/text.ts"
import { type InvalidValue, mustBe } from "./Errors.ts"

interface Value<A> {
  readonly schema: Schema.Decoder<A>
  readonly expected: string
}

const value = <A>(expected: string, schema: Schema.Decoder<A>): Value<A> => ({ schema, expected })

const whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const isName = (text: string): boolean =>
  text !== "" &&
  [...text].length <= 64 &&
  isPrintable(text) &&
  text === text.trim() &&
  text === redactKeys(text)

export const name = value(
  "1 to 64 characters without control characters, no space at either end, and no key",
  Schema.String.check(Schema.makeFilter(isName))
)

/** How many requests or prompts are listed. */
export const listed = value("a whole number from 1 to 1000", whole(1, 1000))

export const reportRows = value("a whole number from 1 to 10000", whole(1, 10_000))

/** Half of what is exact, because what was used before is added. */
export const extraTokens = value(
  "a whole number of tokens from 1 to 4503599627370496",
  whole(1, 4_503_599_627_370_496)
)

/** A century. A longer time is a typing error. */
export const lifetimeMs = value("a time of at most 36500 days", whole(1, 36_500 * dayMs))

export const scopeList = value(
  `a comma list of ${scopes.join(", ")}`,
  Schema.NonEmptyArray(Schema.Literals(scopes))
)

export const aliasName = value(
  "an alias of at most 128 letters, digits and ._-/:@+, the first a letter or a digit",
  Schema.String.check(Schema.isPattern(/^[A-Za-z0-9][\w./:@+-]{0,127}$/))
)

export const modelName = value(
  "a model name of at most 350 characters without spaces",
  Schema.String.check(Schema.makeFilter(isModelName))
)

/** Checks a value. `field` is the name that the operator knows. */
export const validate = <A>(
  field: string,
  { expected, schema }: Value<A>,
  given: unknown
): Effect.Effect<A, InvalidValue> =>
  Schema.decodeUnknownEffect(schema)(given).pipe(Effect.mapError(() => mustBe(field, expected)))

const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

/** Checks attributes. The error names the option of the first that is wrong. What is no attribute, or undefined, is left out. */
const settingsOf = <A>(schema: Schema.Decoder<A>, texts: Readonly<Record<string, AttributeText>>) => {
  const decode = Schema.decodeUnknownEffect(schema)
  return (given: object): Effect.Effect<A, InvalidValue> =>
    Effect.mapError(decode(Record.filter({ ...given }, Predicate.isNotUndefined)), ({ issue }) => {
      const attribute = String(issuesOf(issue).issues[0]?.path?.[0])
      const { expected, name: field } = texts[attribute] ?? { expected: "known", name: attribute }
      return mustBe(field, expected)
    })
}

export const keyChange = settingsOf(Schema.toType(KeyChange), keyTexts)
export const tenantChange = settingsOf(Schema.toType(TenantChange), tenantTexts)

/**
 * Checks what a key would be after a change: names of end users decide about limits only where the operator trusts the sender of a
 * header.
 */
export const usersOf = (
  key: Pick<KeyAttributes, "endUserHeader" | "userRules" | (typeof eachUserFields)[number]>,
  change: KeyChange
): Effect.Effect<void, InvalidValue> => {
  const hasEach = eachUserFields.some((field) => key[field] !== null)
  if (key.endUserHeader !== null || (!hasEach && key.userRules.length === 0)) return Effect.void
  const isRemoved = change.endUserHeader === null
  return mustBe(
    isRemoved ? keyTexts.endUserHeader.name : hasEach ? "each-user" : "user",
    isRemoved
      ? "kept while the key has limits or budgets of each user (set-limits and set-budget --each-user remove them) or rules of one user (the same with --user, and unblock-user)"
      : "used with a key that has a header for its end users: set-end-user sets one"
  )
}
