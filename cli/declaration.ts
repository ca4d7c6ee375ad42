/**
 * The file of `export` and `apply`: tenants and the settings of keys, in YAML or JSON. A field that is absent does not
 * change; null removes a value. Keys are named by their prefix: the file has no secret, so it can make no key.
 */
import { Effect, Result, Schema, Struct } from "effect"
import { parse, stringify } from "yaml"
import { type BudgetState, budgetOf, type KeyOverview, type TenantInfo } from "../src/admin/Registry.ts"
import * as Values from "../src/admin/Values.ts"
import { periods } from "../src/domain/Limits.ts"
import { KeySettings, TenantSettings } from "../src/domain/settings.ts"
import { snakeCase } from "../src/domain/text.ts"
import type { UnreadableRow } from "../src/infra/rows.ts"
import { FileInvalid } from "./errorMessages.ts"

const optional = Schema.optionalKey

/** Settings that the file has in another form. Each other one is a field with its name in snake_case. */
const budgetFields = periods.map((period) => budgetOf[period])
const plainKey = Object.keys(Struct.omit(KeySettings.fields, [...budgetFields, "promptLog", "promptLogDays"]))
const plainTenant = Object.keys(
  Struct.omit(TenantSettings.fields, [...budgetFields, "allowAllModels", "allowedModels", "modelAliases"])
)

/** Their values are checked later, with the texts of the commands. */
const unchecked = (settings: ReadonlyArray<string>) =>
  Object.fromEntries(settings.map((setting) => [snakeCase(setting), optional(Schema.Unknown)]))

const budgetNames = { daily: budgetOf.day, monthly: budgetOf.month, total: budgetOf.total } as const

const Budgets = Schema.Struct({
  daily: optional(Schema.Unknown),
  monthly: optional(Schema.Unknown),
  total: optional(Schema.Unknown)
})

const Key = Schema.Struct({
  prefix: Schema.String,
  /** for the reader: a key keeps its name */
  name: optional(Schema.String),
  enabled: optional(Schema.Boolean),
  ...unchecked(plainKey),
  budgets: optional(Budgets),
  /** the days that prompts are stored; true turns the log on and does not change the days */
  prompt_log: optional(Schema.Union([Schema.Boolean, Schema.Int]))
})

const Tenant = Schema.Struct({
  name: Schema.String,
  enabled: optional(Schema.Boolean),
  ...unchecked(plainTenant),
  /** the allowlist, or `all` */
  models: optional(Schema.Union([Schema.Literal("all"), Schema.Array(Schema.String)])),
  /** all aliases: others are removed */
  aliases: optional(Schema.Record(Schema.String, Schema.String)),
  /** shared by all keys of the tenant */
  budgets: optional(Budgets),
  keys: optional(Schema.Array(Key))
})

export const Declaration = Schema.Struct({ version: Schema.Literal(1), tenants: Schema.Array(Tenant) })
export type Declaration = typeof Declaration.Type
export type DeclaredTenant = typeof Tenant.Type
export type DeclaredKey = typeof Key.Type

/** Far more than ten thousand keys need. */
export const maxFileBytes = 16_777_216

const decode = Schema.decodeUnknownResult(Declaration, { onExcessProperty: "error" })

/** What is wrong, on one line: the place in the file and what was expected there. */
const readDeclarationResult = (text: string): Result.Result<Declaration, string> => {
  let document: unknown
  try {
    // A document with many aliases would grow beyond all memory.
    document = parse(text, { maxAliasCount: 100, prettyErrors: true, uniqueKeys: true })
  } catch (error) {
    return Result.fail(error instanceof Error ? (error.message.split("\n")[0] ?? "") : "it is no YAML")
  }
  return Result.mapError(decode(document), (error) => error.message.replaceAll(/\s+/g, " "))
}

export const readDeclaration = (file: string, text: string): Effect.Effect<Declaration, FileInvalid> =>
  Effect.mapError(
    Effect.fromResult(readDeclarationResult(text)),
    (problem) => new FileInvalid({ file, problem })
  )

/** The fields of `from` that are there, by their names in `to`. */
const renamed = (
  from: object,
  fields: ReadonlyArray<readonly [from: string, to: string]>
): Record<string, unknown> =>
  Object.fromEntries(fields.flatMap(([name, to]) => (name in from ? [[to, Reflect.get(from, name)]] : [])))

const settingsIn = (declared: DeclaredKey | DeclaredTenant, plain: ReadonlyArray<string>) => ({
  ...renamed(
    declared,
    plain.map((setting) => [snakeCase(setting), setting])
  ),
  ...renamed(declared.budgets ?? {}, Object.entries(budgetNames))
})

export const keyChangeOf = (declared: DeclaredKey) =>
  Values.keyChange({
    ...settingsIn(declared, plainKey),
    ...(declared.prompt_log === undefined ? {} : { promptLog: declared.prompt_log !== false }),
    ...(typeof declared.prompt_log === "number" ? { promptLogDays: declared.prompt_log } : {})
  })

export const tenantChangeOf = ({ aliases, models, ...declared }: DeclaredTenant) =>
  Values.tenantChange({
    ...settingsIn(declared, plainTenant),
    ...(models === undefined
      ? {}
      : models === "all"
        ? { allowAllModels: true }
        : { allowAllModels: false, allowedModels: models }),
    ...(aliases === undefined
      ? {}
      : { modelAliases: Object.entries(aliases).map(([alias, model]) => ({ alias, model })) })
  })

const plainFields = (row: object, plain: ReadonlyArray<string>) =>
  renamed(
    row,
    plain.map((setting) => [setting, snakeCase(setting)])
  )

const declaredBudgets = (states: ReadonlyArray<BudgetState>) => {
  const of = (wanted: BudgetState["period"]) => states.find(({ period }) => period === wanted)?.budget ?? null
  return { daily: of("day"), monthly: of("month"), total: of("total") }
}

const declaredKey = (key: KeyOverview): DeclaredKey => ({
  prefix: key.prefix,
  name: key.name,
  enabled: key.status !== "disabled",
  ...plainFields(key, plainKey),
  budgets: declaredBudgets(key.budgets),
  prompt_log: key.promptLog ? (key.promptLogDays ?? true) : false
})

/** A tenant with the budgets that its keys share. */
export type TenantState = TenantInfo & { readonly budgets: ReadonlyArray<BudgetState> }

/** What is in force now. */
export interface State {
  readonly tenants: ReadonlyArray<TenantState>
  readonly keys: ReadonlyArray<KeyOverview>
  /** tenants and keys that could not be read, and are in neither list */
  readonly unreadable: ReadonlyArray<UnreadableRow>
}

/** Revoked keys are left out: nothing of them can change. */
export const declarationOf = ({ keys, tenants }: State): Declaration => ({
  version: 1,
  tenants: tenants.map((tenant) => ({
    name: tenant.name,
    enabled: tenant.status === "active",
    ...plainFields(tenant, plainTenant),
    models: tenant.allowAllModels ? "all" : tenant.allowedModels,
    aliases: Object.fromEntries(tenant.modelAliases.map(({ alias, model }) => [alias, model])),
    budgets: declaredBudgets(tenant.budgets),
    keys: keys.filter((key) => key.tenant === tenant.name && key.status !== "revoked").map(declaredKey)
  }))
})

export const writeDeclaration = (declaration: Declaration): string =>
  `# tollgate export. A field that is absent does not change; null removes a value. No secret is here.\n${stringify(
    declaration,
    { lineWidth: 0 }
  )}`
