/** Flags of several commands. */
import { Effect, type Option, Option as Maybe } from "effect"
import { Flag } from "effect/cli"
import { priorities } from "../src/domain/Caller.ts"
import { InvalidValue } from "../src/admin/Errors.ts"
import { prefix as keyPrefix } from "../src/admin/Values.ts"

export const tenant = Flag.String("tenant").pipe(
  Flag.withDescription("Name of the tenant"),
  Flag.withMetavar("name")
)

/** The prefix of a key. A whole key is accepted, and its secret part is forgotten at once. */
export const readPrefix = (text: string): Maybe.Option<string> =>
  Maybe.fromUndefinedOr(/^([A-Za-z0-9]{2}_[0-9A-Za-z]{9})(?:[0-9A-Za-z]{32})?$/.exec(text)?.[1])

export const prefix = (flag: "prefix" | "key") =>
  Flag.String(flag).pipe(
    Flag.withDescription("The first 12 characters of the key"),
    Flag.withMetavar("prefix"),
    Flag.filterMap(readPrefix, () => keyPrefix.expected)
  )

const count = (flag: string, description: string) =>
  Flag.Int(flag).pipe(Flag.withDescription(description), Flag.withMetavar("n"), Flag.optional)

export const limits = {
  rpm: count("rpm", "Requests per minute"),
  tpm: count("tpm", "Tokens per minute"),
  concurrent: count("concurrent", "Requests at the same time")
}

export const priority = Flag.Literals("priority", priorities).pipe(
  Flag.withDescription(
    "Priority in the queue for the model server: batch requests go when no other request waits"
  ),
  Flag.optional
)

/** Whose budget: a key's, or the one that all keys of a tenant share. */
export const budgetOwner = { key: Flag.optional(prefix("key")), tenant: Flag.optional(tenant) }

export const readBudgetOwner = (given: {
  readonly key: Option.Option<string>
  readonly tenant: Option.Option<string>
}): Effect.Effect<{ readonly key: string } | { readonly tenant: string }, InvalidValue> => {
  const [key, tenant] = [Maybe.getOrUndefined(given.key), Maybe.getOrUndefined(given.tenant)]
  if (key !== undefined && tenant === undefined) return Effect.succeed({ key })
  if (tenant !== undefined && key === undefined) return Effect.succeed({ tenant })
  return Effect.fail(new InvalidValue({ field: "key", expected: "given, or --tenant, but not both" }))
}

/** An amount, or `none` to remove it. */
export const amountOrNone = (flag: string, description: string) =>
  Flag.String(flag).pipe(
    Flag.withDescription(`${description}; "none" removes it`),
    Flag.withMetavar("n|none"),
    Flag.optional
  )

/** `expected` as in `InvalidValue`. */
export const readAmountOrNone = (
  field: string,
  given: Option.Option<string>,
  expected: string
): Effect.Effect<number | null | undefined, InvalidValue> => {
  const text = Maybe.getOrUndefined(given)
  if (text === undefined || text === "none") return Effect.succeed(text === undefined ? text : null)
  return /^\d{1,16}$/.test(text)
    ? Effect.succeed(Number(text))
    : Effect.fail(new InvalidValue({ field, expected: `${expected}, or none` }))
}

/** Only the limits that were given. */
export const givenLimits = <A>(values: {
  readonly rpm: A | undefined
  readonly tpm: A | undefined
  readonly concurrent: A | undefined
}) => ({
  ...(values.rpm === undefined ? {} : { rpm: values.rpm }),
  ...(values.tpm === undefined ? {} : { tpm: values.tpm }),
  ...(values.concurrent === undefined ? {} : { concurrent: values.concurrent })
})

/** `a, b` as `["a", "b"]`. Empty parts are left out. */
export const commaList = (text: string): ReadonlyArray<string> =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
