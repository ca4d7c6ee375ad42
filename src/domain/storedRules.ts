/** Attributes of keys and tenants that are objects in the database: rules of end users and of models, defaults of aliases, an extra budget. */
import { Schema, SchemaGetter } from "effect"
import type { ExtraBudget } from "./Limits.ts"
import { storable } from "./text.ts"

export const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }))

export const Limit = whole(1, 2_147_483_647)

const Tokens = whole(0, Number.MAX_SAFE_INTEGER)

const Entry = Schema.Record(Schema.String, Schema.Unknown)

/** Entries by their name: an object in the database, and a list here, because a name that people choose is no name of a field. */
const named = <E extends Schema.Constraint>(entry: E) =>
  Schema.Record(Schema.String, Entry).pipe(
    Schema.decodeTo(Schema.Array(Entry), {
      decode: SchemaGetter.transform((stored) =>
        Object.entries(stored).map(([name, rest]) => ({ ...rest, name }))
      ),
      encode: SchemaGetter.transform((entries) =>
        Object.fromEntries(entries.map(({ name, ...rest }) => [String(name), rest]))
      )
    }),
    Schema.decodeTo(Schema.Array(entry))
  )

const rates = { name: Schema.String, rpm: Schema.optionalKey(Limit), tpm: Schema.optionalKey(Limit) }

/** What a key may use of one model, in the words of the options. A value that is absent is that of all models. */
export const ModelRules = named(Schema.Struct({ ...rates, daily: Schema.optionalKey(Tokens) }))

/** What one end user may use. A value that is absent is that of each end user. */
export const UserRules = named(
  Schema.Struct({
    ...rates,
    concurrent: Schema.optionalKey(Limit),
    daily: Schema.optionalKey(Tokens),
    weekly: Schema.optionalKey(Tokens),
    monthly: Schema.optionalKey(Tokens),
    total: Schema.optionalKey(Tokens),
    /** whether its requests are refused */
    blocked: Schema.optionalKey(Schema.Boolean)
  })
)

/** Whether, or how hard, a model thinks. */
export const thinking = ["on", "off", "low", "medium", "high", "max"] as const

/** What an alias adds to a request that does not say it itself. */
export const AliasDefaults = named(
  Schema.Struct({
    name: Schema.String,
    num_ctx: Schema.optionalKey(whole(4, 10_000_000)),
    think: Schema.optionalKey(Schema.Literals(thinking)),
    system: Schema.optionalKey(
      Schema.NonEmptyString.check(Schema.makeFilter((text) => storable(text) === text))
    )
  })
)

/** An extra budget, as it is stored. */
export const StoredExtra = Schema.NullOr(
  Schema.Struct({
    tokens: whole(1, Number.MAX_SAFE_INTEGER),
    upTo: whole(1, Number.MAX_SAFE_INTEGER),
    until: Schema.DateFromString
  })
)

export const extraBudgetOf = (stored: typeof StoredExtra.Type): ExtraBudget | undefined =>
  stored === null ? undefined : { ...stored, until: stored.until.getTime() }
