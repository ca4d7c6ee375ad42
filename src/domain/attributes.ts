/**
 * The attributes of keys and tenants: their columns, the values that an operator may give, and the words of the commands.
 *
 * Rows, registry, options, tables, `export`, `apply` and `rotate-key` are made from the lists of this file. A new attribute of a
 * key is a migration, its lines in `KeyAttributes`, `newKey` and `keyTexts`, its field of the caller (`Caller.ts`), and the
 * place that enforces it.
 */
import { Record, Schema, SchemaGetter, Struct } from "effect"
import { clientText } from "./clientText.ts"
import { endUserOf } from "./EndUser.ts"
import { withoutDefaultTag } from "./modelName.ts"
import { isPrintable } from "./text.ts"
import { AliasDefaults, Limit, ModelRules, StoredExtra, thinking, UserRules, whole } from "./storedRules.ts"

/** A `batch` request starts when no interactive one waits, and after ten minutes at the latest. */
const priorities = ["interactive", "batch"] as const
export type Priority = (typeof priorities)[number]

export const RetentionDays = whole(1, 3650)

/** Tokens, a bigint in the database. */
const Budget = Schema.NullOr(
  Schema.BigInt.pipe(
    Schema.decodeTo(whole(0, Number.MAX_SAFE_INTEGER), {
      decode: SchemaGetter.transform(Number),
      encode: SchemaGetter.transform(BigInt)
    })
  )
)

/** Alias and model. An object in the database; a list here, because a name that people choose is no name of a field. */
const Aliases = Schema.Record(Schema.String, Schema.String).pipe(
  Schema.decodeTo(Schema.Array(Schema.Struct({ alias: Schema.String, model: Schema.String })), {
    decode: SchemaGetter.transform((stored) =>
      Object.entries(stored).map(([alias, model]) => ({ alias, model }))
    ),
    encode: SchemaGetter.transform((aliases) =>
      Object.fromEntries(aliases.map(({ alias, model }) => [alias, model]))
    )
  })
)

/** Of a key: shared by all keys of its account. Of a tenant: shared by all its keys. null: none. */
const Budgets = {
  budgetDaily: Budget,
  budgetWeekly: Budget,
  budgetMonthly: Budget,
  budgetTotal: Budget,
  extraBudget: StoredExtra
}

const KeyLimits = {
  rpm: Schema.NullOr(Limit),
  tpm: Schema.NullOr(Limit),
  concurrent: Schema.NullOr(Limit)
}

/** The attributes of each end user, by the attribute of the key that is like it. */
export const eachUserOf = {
  rpm: "eachUserRpm",
  tpm: "eachUserTpm",
  concurrent: "eachUserConcurrent",
  budgetDaily: "eachUserDaily",
  budgetWeekly: "eachUserWeekly",
  budgetMonthly: "eachUserMonthly",
  budgetTotal: "eachUserTotal"
} as const

export const eachUserFields = Object.values(eachUserOf)

/** What a row of `api_keys` says beside who the key is. The name of a column is that of the field in snake_case. */
export const KeyAttributes = Schema.Struct({
  ...KeyLimits,
  priority: Schema.Literals(priorities),
  endUserHeader: Schema.NullOr(Schema.String.check(Schema.isPattern(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/))),
  /** which of its tenant's models it may use; null: all of them */
  ownModels: Schema.NullOr(Schema.Array(Schema.String)),
  promptLog: Schema.Boolean,
  promptLogDays: Schema.NullOr(RetentionDays),
  /** names of end users are stored as hashes */
  hashUsers: Schema.Boolean,
  ...Budgets,
  /** of each end user, beside those of the key; null: none */
  ...Struct.renameKeys({ ...KeyLimits, ...Struct.omit(Budgets, ["extraBudget"]) }, eachUserOf),
  /** of single end users, by the name that the audit stores; shared by all keys of its account */
  userRules: UserRules,
  /** limits for single models, by their names without `:latest`; shared by all keys of its account */
  modelRules: ModelRules
})
export type KeyAttributes = typeof KeyAttributes.Type

/** What a row of `tenants` says beside who the tenant is and whether it is disabled. */
export const TenantAttributes = Schema.Struct({
  rpm: Limit,
  tpm: Limit,
  concurrent: Limit,
  allowAllModels: Schema.Boolean,
  allowedModels: Schema.Array(Schema.String),
  modelAliases: Aliases,
  /** by the name of the alias */
  aliasDefaults: AliasDefaults,
  /** the tenant's share of the backend while requests wait for it: twice the weight is twice the share */
  weight: whole(1, 1000),
  /** the same for each of its keys, where a key has none of its own */
  modelRules: ModelRules,
  ...Budgets
})
export type TenantAttributes = typeof TenantAttributes.Type
export type AliasDefaults = Omit<TenantAttributes["aliasDefaults"][number], "name">

const noBudgets = {
  budgetDaily: null,
  budgetWeekly: null,
  budgetMonthly: null,
  budgetTotal: null,
  extraBudget: null
}

/** The attributes of a key and of a tenant for which nothing is given. The limits of a tenant are settings of the gateway. */
export const newKey: KeyAttributes = {
  rpm: null,
  tpm: null,
  concurrent: null,
  priority: "interactive",
  endUserHeader: null,
  ownModels: null,
  promptLog: false,
  promptLogDays: null,
  hashUsers: false,
  ...noBudgets,
  ...Struct.renameKeys(
    Record.map(eachUserOf, () => null),
    eachUserOf
  ),
  userRules: [],
  modelRules: []
}
export const newTenant: Omit<TenantAttributes, "rpm" | "tpm" | "concurrent"> = {
  allowAllModels: false,
  allowedModels: [],
  modelAliases: [],
  aliasDefaults: [],
  weight: 1,
  modelRules: [],
  ...noBudgets
}

/** Headers with credentials: the audit must not store them. `none` is the word that removes a header. */
const refusedHeaders: ReadonlySet<string | undefined> = new Set([
  "authorization",
  "proxy-authorization",
  "cookie",
  "set-cookie",
  "x-api-key",
  "api-key",
  "none"
])

export const isModelName = (name: string): boolean =>
  name !== "" && [...name].length <= 350 && isPrintable(name) && !/\s/.test(name)

export const ModelList = TenantAttributes.fields.allowedModels.check(
  Schema.isMaxLength(10_000),
  Schema.makeFilter((names) => names.every(isModelName))
)

/** Each key of a tenant brings the aliases along, so their number is bounded. */
const maxAliases = 100

/** Each reading of a key of the tenant brings them along, so their size is bounded too: UTF-8 bytes of all system texts. */
export const maxSystemBytes = 16_384

/** Each reading of a key brings them along. */
const maxUserRules = 1000

/** Each of them may be an account of each key. */
const maxModelRules = 32

/** A header names the model, so it is ASCII; the ledger has its name as it is, also with `:latest` (`audit/rows.ts`). */
const isRuledName = (name: string): boolean =>
  /^[!-~]{1,100}$/.test(name) && name === withoutDefaultTag(name) && name === clientText(name, 100)

const OfModels = ModelRules.check(
  Schema.isMaxLength(maxModelRules),
  Schema.makeFilter((rules) => rules.every(({ name }) => isRuledName(name)))
)

/**
 * What an operator gives to change a key or a tenant. A field that is absent does not change. Some values are refused that a row
 * may have.
 */
export const KeyChange = Schema.Struct({
  ...KeyAttributes.mapFields(Struct.map(Schema.optionalKey)).fields,
  ownModels: Schema.optionalKey(Schema.NullOr(ModelList)),
  endUserHeader: Schema.optionalKey(
    KeyAttributes.fields.endUserHeader.check(
      Schema.makeFilter((header) => !refusedHeaders.has(header?.toLowerCase()))
    )
  ),
  userRules: Schema.optionalKey(
    KeyAttributes.fields.userRules.check(
      Schema.isMaxLength(maxUserRules),
      Schema.makeFilter((rules) => rules.every(({ name }) => endUserOf(name) !== undefined))
    )
  ),
  modelRules: Schema.optionalKey(OfModels)
})
export const TenantChange = Schema.Struct({
  ...TenantAttributes.mapFields(Struct.map(Schema.optionalKey)).fields,
  allowedModels: Schema.optionalKey(ModelList),
  modelAliases: Schema.optionalKey(
    TenantAttributes.fields.modelAliases.check(Schema.isMaxLength(maxAliases))
  ),
  aliasDefaults: Schema.optionalKey(
    TenantAttributes.fields.aliasDefaults.check(
      Schema.isMaxLength(maxAliases),
      Schema.makeFilter(
        (all) => Buffer.byteLength(all.map(({ system = "" }) => system).join("")) <= maxSystemBytes
      )
    )
  ),
  modelRules: Schema.optionalKey(OfModels)
})
export type KeyChange = typeof KeyChange.Type
export type TenantChange = typeof TenantChange.Type

/** The option of an attribute. */
export interface AttributeOption {
  /** what help says */
  readonly about: string
  /** what stands for the value in help, where `n` is a number; or the values to choose from */
  readonly value: "n" | "name" | ReadonlyArray<string>
  /** the command that changes the attribute; undefined: one that names the option in its own way */
  readonly changedBy: "set-limits" | "set-budget" | undefined
  /** whether `create-key` or `create-tenant` has the option */
  readonly atCreation: boolean
}

/** How commands speak of an attribute. */
export interface AttributeText {
  /** the name of its option, without dashes */
  readonly name: string
  /** the end of "--name must be …" */
  readonly expected: string
  /** undefined: a command has written its options out */
  readonly option: AttributeOption | undefined
}

type Texts<S, More> = { readonly [F in keyof S]: AttributeText & More }

const limit = (name: string, about: string, label: string) => ({
  name,
  expected: "a whole number from 1 to 2147483647",
  option: { about, value: "n", changedBy: "set-limits", atCreation: true } as const,
  label
})

const budget = (name: string, about: string) => ({
  name,
  expected: "a whole number of tokens from 0 to 9007199254740991",
  option: { about, value: "n", changedBy: "set-budget", atCreation: true } as const,
  label: undefined
})

const sharedTexts = {
  rpm: limit("rpm", "Requests per minute", "requests a minute"),
  tpm: limit("tpm", "Tokens per minute", "tokens a minute"),
  concurrent: limit("concurrent", "Requests at the same time", "at a time"),
  budgetDaily: budget("daily", "Tokens per day"),
  budgetWeekly: budget("weekly", "Tokens per week, from Monday"),
  budgetMonthly: budget("monthly", "Tokens per month"),
  budgetTotal: budget("total", "Tokens for ever"),
  extraBudget: {
    name: "extra-budget",
    expected: "made with add-budget",
    option: undefined,
    label: undefined
  },
  modelRules: {
    name: "model",
    expected: `a model name of at most 100 ASCII characters without :latest, and at most ${maxModelRules} models have limits of their own`,
    option: undefined,
    label: undefined
  }
}

/** A command has these options beside --each-user. */
const ofEachUser = ({ expected, name }: AttributeText) => ({
  name: `each-user --${name}`,
  expected,
  option: undefined,
  label: undefined
})

const modelsExpected = "a comma list of model names, each of at most 350 characters without spaces"

/** `label`: its name in `show-key`; undefined: it is shown in another way. */
export const keyTexts: Texts<KeyAttributes, { readonly label: string | undefined }> = {
  ...sharedTexts,
  priority: {
    name: "priority",
    expected: priorities.join(" or "),
    option: {
      about: "Priority in the queue for the model server: batch requests go when no other request waits",
      value: priorities,
      changedBy: "set-limits",
      atCreation: true
    },
    label: "priority"
  },
  endUserHeader: {
    name: "end-user-header",
    expected:
      "the name of a header of at most 64 characters that carries no credentials, such as X-OpenWebUI-User-Email",
    option: {
      about: "Header with the end user of a request, such as X-OpenWebUI-User-Email; stored in the audit",
      value: "name",
      changedBy: undefined,
      atCreation: true
    },
    label: "end users"
  },
  ownModels: { name: "models", expected: modelsExpected, option: undefined, label: "models" },
  promptLog: {
    name: "prompt-log",
    expected: "true, false or a whole number of days from 1 to 3650",
    option: undefined,
    label: "prompt log"
  },
  promptLogDays: {
    name: "retention-days",
    expected: "a whole number of days from 1 to 3650",
    option: undefined,
    label: undefined
  },
  hashUsers: { name: "hash-users", expected: "true or false", option: undefined, label: undefined },
  ...Struct.renameKeys(
    Record.map(eachUserOf, (_, attribute) => ofEachUser(sharedTexts[attribute])),
    eachUserOf
  ),
  userRules: {
    name: "user",
    expected: `a name of an end user, and at most ${maxUserRules} of a key have rules of their own`,
    option: undefined,
    label: undefined
  }
}

export const tenantTexts: Texts<TenantAttributes, unknown> = {
  ...sharedTexts,
  weight: {
    name: "weight",
    expected: "a whole number from 1 to 1000",
    option: {
      about: "Share of the model server while requests wait for it; for tenants only",
      value: "n",
      changedBy: "set-limits",
      atCreation: false
    }
  },
  allowAllModels: { name: "allow-all", expected: "true or false", option: undefined },
  allowedModels: {
    name: "models",
    expected: modelsExpected,
    option: undefined
  },
  modelAliases: { name: "alias", expected: `at most ${maxAliases} aliases for a tenant`, option: undefined },
  aliasDefaults: {
    name: "alias",
    expected: `given with a num_ctx from 4 to 10000000, a system text (${maxSystemBytes} bytes for all aliases of a tenant) and think as one of ${thinking.join(", ")}`,
    option: undefined
  }
}
