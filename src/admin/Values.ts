/** The values that an operator may set, each with the text of its error message. */
import { Effect, Schema } from "effect"
import { priorities, scopes } from "../domain/Caller.ts"
import { redactKeys } from "../domain/Key.ts"
import { isPrintable } from "../domain/text.ts"
import { InvalidValue } from "./Errors.ts"

interface Value<A> {
  readonly schema: Schema.Decoder<A>
  readonly expected: string
}

const value = <A>(expected: string, schema: Schema.Decoder<A>): Value<A> => ({ schema, expected })

const text = (maxLength: number, extra: (value: string) => boolean) =>
  Schema.String.check(
    Schema.makeFilter((value: string) => {
      const length = [...value].length
      return length > 0 && length <= maxLength && isPrintable(value) && extra(value)
    })
  )

const between = (min: number, max: number) =>
  Schema.Int.check(Schema.isGreaterThanOrEqualTo(min), Schema.isLessThanOrEqualTo(max))

export const name = value(
  "1 to 64 characters without control characters, no space at either end, and no key",
  text(64, (value) => value === value.trim() && value === redactKeys(value))
)

export const prefix = value(
  "the 12-character prefix of a key, as list-keys shows it",
  Schema.String.check(Schema.isPattern(/^[A-Za-z0-9]{2}_[0-9A-Za-z]{9}$/))
)

export const limit = value("a whole number from 1 to 2147483647", between(1, 2_147_483_647))

export const weight = value("a whole number from 1 to 1000", between(1, 1000))

export const priority = value(priorities.join(" or "), Schema.Literals(priorities))

/** Headers with credentials: the audit must not store them. `none` is the word that removes a header. */
const refusedHeaders: ReadonlySet<string> = new Set([
  "authorization",
  "proxy-authorization",
  "cookie",
  "set-cookie",
  "x-api-key",
  "api-key",
  "none"
])

export const endUserHeader = value(
  "the name of a header of at most 64 characters that carries no credentials, such as X-OpenWebUI-User-Email",
  Schema.String.check(
    Schema.isPattern(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/),
    Schema.makeFilter((name: string) => !refusedHeaders.has(name.toLowerCase()))
  )
)

export const budget = value(
  "a whole number of tokens from 0 to 9007199254740991",
  between(0, Number.MAX_SAFE_INTEGER)
)

export const retentionDays = value("a whole number of days from 1 to 3650", between(1, 3650))

export const promptCount = value("a whole number from 1 to 1000", between(1, 1000))

export const requestCount = value("a whole number from 1 to 1000", between(1, 1000))

export const reportRows = value("a whole number from 1 to 10000", between(1, 10_000))

export const auditDays = value("a time of 1 to 36500 days", between(1, 36_500))

/** A century. A longer time is a typing error. */
export const lifetimeMs = value("a time of at most 36500 days", between(1, 36_500 * 86_400_000))

export const scopeList = value(
  `a comma list of ${scopes.join(", ")}`,
  Schema.NonEmptyArray(Schema.Literals(scopes))
)

export const modelList = value(
  "a comma list of model names, each of at most 350 characters without spaces",
  Schema.Array(text(350, (value) => !/\s/.test(value))).check(Schema.isMaxLength(10_000))
)

/** Each key of the tenant brings its aliases along, so their number is bounded. */
const maxAliases = 100

const isAlias = Schema.isPattern(/^[A-Za-z0-9][\w./:@+-]{0,127}$/)

export const aliasName = value(
  "an alias of at most 128 letters, digits and ._-/:@+, the first a letter or a digit",
  Schema.String.check(isAlias)
)

export const aliasTarget = value(
  "a model name of at most 350 characters without spaces",
  text(350, (value) => !/\s/.test(value))
)

export const aliases = value(
  `at most ${maxAliases} aliases for a tenant`,
  Schema.Record(Schema.String, Schema.String).check(
    Schema.makeFilter((aliases) => Object.keys(aliases).length <= maxAliases)
  )
)

/** Checks a value. `field` is the name that the operator knows. */
export const validate = <A>(
  field: string,
  { expected, schema }: Value<A>,
  given: unknown
): Effect.Effect<A, InvalidValue> =>
  Schema.decodeUnknownEffect(schema)(given).pipe(Effect.mapError(() => new InvalidValue({ field, expected })))
