/** Flags of several commands. */
import { Effect, Option, Predicate, Record, Result, Schema, type Scope } from "effect"
import { Flag } from "effect/cli"
import {
  KeyAttributes,
  keyTexts,
  type AttributeOption,
  type AttributeText,
  TenantAttributes,
  tenantTexts
} from "../src/domain/attributes.ts"
import { type InvalidValue, mustBe } from "../src/admin/Errors.ts"
import type { Owner } from "../src/admin/rows.ts"
import { isWithin } from "../src/infra/environment.ts"
import { Needs } from "./Needs.ts"
import { aDeadline, aLifetime, readDeadline, readLifetime } from "./times.ts"

/** undefined: it is not given. */
export const optional = <A>(flag: Flag.Flag<A>): Flag.Flag<A | undefined> =>
  Flag.map(Flag.optional(flag), Option.getOrUndefined)

export const text = (name: string, metavar: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.withMetavar(metavar))

/** A text that need not be given. */
export const optionalText = (name: string, metavar: string, description: string) =>
  optional(text(name, metavar, description))

export const toggle = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

const scale: Readonly<Record<string, number>> = { k: 1e3, K: 1e3, M: 1e6, G: 1e9 }

/** A whole number as people write it: `1000000`, `1_000_000`, `1,000,000`, `1M` or `1.5M`. */
export const readNumber = (text: string): Option.Option<number> => {
  const [, digits = "", unit = ""] =
    /^(\d{1,16}|\d{1,3}(?:_\d{3})+|\d{1,3}(?:,\d{3})+|\d{1,6}\.\d{1,9}(?=[kKMG]))([kKMG]?)$/.exec(text) ?? []
  const value = Number(digits.replaceAll(/[_,]/g, "")) * (scale[unit] ?? 1)
  return digits !== "" && Number.isSafeInteger(value) ? Option.some(value) : Option.none()
}

export const count = (name: string, description: string) =>
  text(name, "n", description).pipe(Flag.filterMap(readNumber, () => "a whole number"))

/** null: `none`, which removes it. */
export const numberOrNone = (name: string, description: string) =>
  text(name, "n|none", description).pipe(
    Flag.filterMap(
      (text) => (text === "none" ? Option.some(null) : readNumber(text)),
      () => "a whole number, or none"
    )
  )

/** A time such as `12h`, in milliseconds. */
export const lifetime = (name: string, description: string) =>
  text(name, "time", description).pipe(Flag.filterMap(readLifetime, () => aLifetime))

/** An end in the future. */
export const deadline = (name: string, description: string) =>
  text(name, "when", description).pipe(Flag.filterMap(readDeadline, () => aDeadline))

export const tenant = text("tenant", "name", "Name of the tenant")

/** The prefix of a key. A whole key is accepted, and its secret part is forgotten at once. */
export const readPrefix = (text: string): Option.Option<string> =>
  Option.fromUndefinedOr(/^([A-Za-z0-9]{2}_[0-9A-Za-z]{9})(?:[0-9A-Za-z]{32})?$/.exec(text)?.[1])

/** A key by its prefix or its name: `keyOf` says which key that is. */
export const key = (flag: "prefix" | "key") =>
  text(flag, "key", "The key: its first 12 characters, or its name").pipe(
    // The commands of this program name a key in two ways, and people mix them.
    Flag.withAlias(flag === "key" ? "prefix" : "key")
  )

/** The prefix of a key that was named. */
export const keyOf = (named: string) =>
  Option.match(readPrefix(named), {
    onSome: (prefix) => Effect.succeed(prefix),
    onNone: () => Effect.flatMap(Needs.registry, ({ prefixOfName }) => prefixOfName(named))
  })

/** The registry, and the prefix of a key that was named. */
export const keyIn = (named: string) => Effect.all([Needs.registry, keyOf(named)])

/** One end user of a key. `yes`: also one that no request has named. */
export const endUser = {
  user: text("user", "name", "One end user of the key, as its requests name it"),
  yes: toggle("yes", "Also when no request of the key has named that user")
}

/** Names are compared without case; so many are proposed. */
const mostProposed = 5

/** The stored name of an end user of a key. A name that nobody has had is refused with those that are like it, unless `yes`. */
export const userOf = Effect.fnUntraced(function* (prefix: string, user: string, yes = false) {
  const registry = yield* Needs.registry
  const { known, stored } = yield* registry.endUsers(prefix, user)
  if (stored === "") return yield* mustBe("user", "a name")
  if (yes || known.includes(stored)) return stored
  const name = stored.toLowerCase()
  const like = known.filter((one) => one.toLowerCase().includes(name) || isWithin(2, one.toLowerCase(), name))
  const meant = like.length === 0 ? "" : `did you mean ${like.slice(0, mostProposed).join(" or ")}? `
  return yield* mustBe("user", `an end user of the key in the last month; ${meant}(--yes takes any name)`)
})

/** A key or a tenant. */
export const owner = { key: optional(key("key")), tenant: optional(tenant) }

/** `first`: the option that the error names first. */
export const readOwner = Effect.fnUntraced(function* (
  { key, tenant }: { readonly key: string | undefined; readonly tenant: string | undefined },
  first: "key" | "tenant"
): Effect.fn.Return<Owner, Error, Needs | Scope.Scope> {
  if (key !== undefined && tenant === undefined) return { key: yield* keyOf(key) }
  if (tenant !== undefined && key === undefined) return { tenant }
  const other = first === "key" ? "tenant" : "key"
  return yield* mustBe(first, `given, or --${other}, but not both`)
})

type Texts = Readonly<Record<string, AttributeText>>

const fields: Readonly<Record<string, Schema.Constraint>> = {
  ...TenantAttributes.fields,
  ...KeyAttributes.fields
}
const bothTexts: Texts = { ...tenantTexts, ...keyTexts }

/** A value that is typed; undefined when it is none. The registry says whether the attribute may have it. */
const readValue = (text: string, { value }: AttributeOption, removes: boolean): Option.Option<unknown> => {
  if (removes && text === "none") return Option.some(null)
  if (value !== "n") return Option.some(text)
  return readNumber(text)
}

/** How a column of a table with the name of an option of `create-key` is read. */
export const columnOf = (name: string) => {
  const found = Object.entries(keyTexts).find(([, text]) => text.name === name)
  const option = found?.[1].option
  return found === undefined || option?.atCreation !== true
    ? undefined
    : ([found[0], (text: string) => Option.getOrUndefined(readValue(text, option, false))] as const)
}

/** The options of a command by attribute. A command that `changes` attributes removes those that may be null with `none`. */
const attributeFlags = (texts: Texts, has: (option: AttributeOption) => boolean, changes: boolean) =>
  Record.filterMap(texts, ({ expected, name, option }, attribute) => {
    if (option === undefined || !has(option)) return Result.failVoid
    const schema = fields[attribute]
    const removes = changes && schema !== undefined && Schema.is(schema)(null)
    const flag =
      typeof option.value === "string"
        ? Flag.withMetavar(Flag.String(name), removes ? `${option.value}|none` : option.value)
        : Flag.Literals(name, option.value)
    return Result.succeed(
      flag.pipe(
        Flag.withDescription(removes ? `${option.about}; "none" removes it` : option.about),
        Flag.filterMap(
          (text) => readValue(text, option, removes),
          () => (removes ? `${expected}, or none` : expected)
        ),
        optional
      )
    )
  })

/** The options of `create-key` and `create-tenant`. */
export const creationFlags = (of: "key" | "tenant") =>
  attributeFlags(of === "key" ? keyTexts : tenantTexts, ({ atCreation }) => atCreation, false)

/** The options of a command that changes keys and tenants. */
export const changeFlags = (command: AttributeOption["changedBy"]) =>
  attributeFlags(bothTexts, ({ changedBy }) => changedBy === command, true)

/** The attributes that are given, by name. */
export type GivenAttributes = Readonly<Record<string, unknown>>

/** The name of the option of an attribute, without dashes. */
export const optionOf = (attribute: string): string => bothTexts[attribute]?.name ?? attribute

/** Fails when one of the attributes is only for tenants, and the owner is a key, or the other way round. */
export const checkOwner = (given: GivenAttributes, owner: Owner): Effect.Effect<void, InvalidValue> => {
  const [of, other, texts] = "key" in owner ? ["key", "tenant", keyTexts] : ["tenant", "key", tenantTexts]
  const alien = Object.keys(given).find(
    (attribute) => given[attribute] !== undefined && !(attribute in texts)
  )
  const expected = `given with --${other}, not with --${of}`
  return alien === undefined ? Effect.void : mustBe(bothTexts[alien]?.name ?? alien, expected)
}

/** Fails when none of the options is given. */
export const requireOne = (given: GivenAttributes): Effect.Effect<void, InvalidValue> => {
  if (Object.values(given).some(Predicate.isNotUndefined)) return Effect.void
  const [field = "", ...others] = Object.keys(given).map((attribute) => bothTexts[attribute]?.name ?? "")
  const expected = `given, or --${others.slice(0, -1).join(", --")} or --${others.at(-1)}`
  return mustBe(field, expected)
}

/** `a, b` as `["a", "b"]`. Empty parts are left out. */
export const commaList = (text: string): ReadonlyArray<string> =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
