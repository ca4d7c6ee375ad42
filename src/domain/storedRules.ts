/** Attributes of keys and tenants that are objects in the database: rules of end users and of models, defaults of aliases, an extra budget. */
import { Schema, SchemaGetter } from "effect"
import type { ExtraBudget } from "./Limits.ts"
import { storable } from "./text.ts"

export const whole = (minimum: number, maximum: number) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }))

export const Limit = whole(1, 2_147_483_647)

const Tokens = whole(0, Number.MAX_SAFE_INTEGER)

/** What one end user may use, in the words of the options. A value that is absent is that of each end user. */
const OfUser = {
  rpm: Schema.optionalKey(Limit),
  tpm: Schema.optionalKey(Limit),
  concurrent: Schema.optionalKey(Limit),
  daily: Schema.optionalKey(Tokens),
  weekly: Schema.optionalKey(Tokens),
  monthly: Schema.optionalKey(Tokens),
  total: Schema.optionalKey(Tokens),
  /** whether its requests are refused */
  blocked: Schema.optionalKey(Schema.Boolean)
}

/** Rules by name: like the aliases, an object in the database and a list here. */
export const UserRules = Schema.Record(Schema.String, Schema.Struct(OfUser)).pipe(
  Schema.decodeTo(Schema.Array(Schema.Struct({ name: Schema.String, ...OfUser })), {
    decode: SchemaGetter.transform((stored) =>
      Object.entries(stored).map(([name, rules]) => ({ name, ...rules }))
    ),
    encode: SchemaGetter.transform((rules) =>
      Object.fromEntries(rules.map(({ name, ...rule }) => [name, rule]))
    )
  })
)

/** What a key may use of one model, in the words of the options. A value that is absent is that of all models. */
const OfModel = {
  rpm: Schema.optionalKey(Limit),
  tpm: Schema.optionalKey(Limit),
  daily: Schema.optionalKey(Tokens)
}

export const ModelRules = Schema.Record(Schema.String, Schema.Struct(OfModel)).pipe(
  Schema.decodeTo(Schema.Array(Schema.Struct({ name: Schema.String, ...OfModel })), {
    decode: SchemaGetter.transform((stored) =>
      Object.entries(stored).map(([name, rule]) => ({ name, ...rule }))
    ),
    encode: SchemaGetter.transform((rules) =>
      Object.fromEntries(rules.map(({ name, ...rule }) => [name, rule]))
    )
  })
)

/** Whether, or how hard, a model thinks. */
export const thinking = ["on", "off", "low", "medium", "high", "max"] as const

/** What an alias adds to a request that does not say it itself. */
const OfAlias = {
  num_ctx: Schema.optionalKey(whole(4, 10_000_000)),
  think: Schema.optionalKey(Schema.Literals(thinking)),
  system: Schema.optionalKey(
    Schema.NonEmptyString.check(Schema.makeFilter((text) => storable(text) === text))
  )
}

export const AliasDefaults = Schema.Record(Schema.String, Schema.Struct(OfAlias)).pipe(
  Schema.decodeTo(Schema.Array(Schema.Struct({ name: Schema.String, ...OfAlias })), {
    decode: SchemaGetter.transform((stored) =>
      Object.entries(stored).map(([name, defaults]) => ({ name, ...defaults }))
    ),
    encode: SchemaGetter.transform((all) =>
      Object.fromEntries(all.map(({ name, ...defaults }) => [name, defaults]))
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
