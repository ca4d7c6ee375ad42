/** Flags of several commands. */
import { Effect, Option, Predicate, Record, Result, Schema } from "effect"
import { Flag } from "effect/cli"
import {
  KeySettings,
  keyTexts,
  type SettingOption,
  type SettingText,
  TenantSettings,
  tenantTexts
} from "../src/domain/settings.ts"
import { InvalidValue } from "../src/admin/Errors.ts"
import { prefix as keyPrefix } from "../src/admin/Values.ts"
import { aLifetime, readLifetime } from "./times.ts"

/** undefined: it is not given. */
export const optional = <A>(flag: Flag.Flag<A>): Flag.Flag<A | undefined> =>
  Flag.map(Flag.optional(flag), Option.getOrUndefined)

export const text = (name: string, metavar: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.withMetavar(metavar))

export const toggle = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

export const count = (name: string, description: string) =>
  Flag.Int(name).pipe(Flag.withDescription(description), Flag.withMetavar("n"))

/** A time such as `12h`, in milliseconds. */
export const lifetime = (name: string, description: string) =>
  text(name, "time", description).pipe(Flag.filterMap(readLifetime, () => aLifetime))

export const tenant = text("tenant", "name", "Name of the tenant")

/** The prefix of a key. A whole key is accepted, and its secret part is forgotten at once. */
export const readPrefix = (text: string): Option.Option<string> =>
  Option.fromUndefinedOr(/^([A-Za-z0-9]{2}_[0-9A-Za-z]{9})(?:[0-9A-Za-z]{32})?$/.exec(text)?.[1])

export const prefix = (flag: "prefix" | "key") =>
  text(flag, "prefix", "The first 12 characters of the key").pipe(
    Flag.filterMap(readPrefix, () => keyPrefix.expected)
  )

/** A key or a tenant. */
export const owner = { key: optional(prefix("key")), tenant: optional(tenant) }

export type Owner = { readonly key: string } | { readonly tenant: string }

/** `first`: the option that the error names first. */
export const readOwner = (
  { key, tenant }: { readonly key: string | undefined; readonly tenant: string | undefined },
  first: "key" | "tenant"
): Effect.Effect<Owner, InvalidValue> => {
  if (key !== undefined && tenant === undefined) return Effect.succeed({ key })
  if (tenant !== undefined && key === undefined) return Effect.succeed({ tenant })
  const other = first === "key" ? "tenant" : "key"
  return Effect.fail(new InvalidValue({ field: first, expected: `given, or --${other}, but not both` }))
}

interface List {
  readonly texts: Readonly<Record<string, SettingText>>
  readonly fields: Readonly<Record<string, Schema.Constraint>>
}

const lists: Readonly<Record<"key" | "tenant" | "both", List>> = {
  key: { texts: keyTexts, fields: KeySettings.fields },
  tenant: { texts: tenantTexts, fields: TenantSettings.fields },
  both: {
    texts: { ...tenantTexts, ...keyTexts },
    fields: { ...TenantSettings.fields, ...KeySettings.fields }
  }
}

/** Whether a setting can be null: `none` on the command line. */
const isRemovable = ({ fields }: List, setting: string): boolean => {
  const schema = fields[setting]
  return schema !== undefined && Schema.is(schema)(null)
}

const settingFlag = ({ name }: SettingText, { about, value }: SettingOption, removes: boolean) =>
  optional(
    (typeof value === "string"
      ? Flag.withMetavar(Flag.String(name), removes ? `${value}|none` : value)
      : Flag.Literals(name, value)
    ).pipe(Flag.withDescription(removes ? `${about}; "none" removes it` : about))
  )

/** The options of a command by setting. */
const settingFlags = (of: keyof typeof lists, has: (option: SettingOption) => boolean, removes: boolean) =>
  Record.filterMap(lists[of].texts, (text, setting) =>
    text.option !== undefined && has(text.option)
      ? Result.succeed(settingFlag(text, text.option, removes && isRemovable(lists[of], setting)))
      : Result.failVoid
  )

/** The options of `create-key` and `create-tenant`. */
export const creationFlags = (of: "key" | "tenant") => settingFlags(of, ({ atCreation }) => atCreation, false)

/** The options of a command that changes keys and tenants. */
export const changeFlags = (command: SettingOption["changedBy"]) =>
  settingFlags("both", ({ changedBy }) => changedBy === command, true)

export type GivenSettings = Readonly<Record<string, string | undefined>>

/** The settings that are given. Numbers are read; the registry checks them. `removes`: whether `none` removes a setting. */
export const givenSettings = (
  given: GivenSettings,
  of: "key" | "tenant",
  removes: boolean
): Effect.Effect<Readonly<Record<string, unknown>>, InvalidValue> => {
  const list = lists[of]
  const read = (setting: string, text: string): Result.Result<unknown, InvalidValue> => {
    const known = list.texts[setting]
    if (known === undefined) {
      const expected = `given with --${of === "key" ? "tenant" : "key"}, not with --${of}`
      return Result.fail(new InvalidValue({ field: lists.both.texts[setting]?.name ?? setting, expected }))
    }
    if (removes && text === "none") return Result.succeed(null)
    if (known.option?.value !== "n") return Result.succeed(text)
    const expected = removes && isRemovable(list, setting) ? `${known.expected}, or none` : known.expected
    return /^\d{1,16}$/.test(text)
      ? Result.succeed(Number(text))
      : Result.fail(new InvalidValue({ field: known.name, expected }))
  }
  const texts = Record.filter(given, Predicate.isNotUndefined)
  return Effect.fromResult(Result.all(Record.map(texts, (text, setting) => read(setting, text))))
}

/** Fails when none of the options is given. */
export const requireOne = (given: GivenSettings): Effect.Effect<void, InvalidValue> => {
  if (Object.values(given).some(Predicate.isNotUndefined)) return Effect.void
  const [field = "", ...others] = Object.keys(given).map((setting) => lists.both.texts[setting]?.name ?? "")
  const expected = `given, or --${others.slice(0, -1).join(", --")} or --${others.at(-1)}`
  return Effect.fail(new InvalidValue({ field, expected }))
}

/** `a, b` as `["a", "b"]`. Empty parts are left out. */
export const commaList = (text: string): ReadonlyArray<string> =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
