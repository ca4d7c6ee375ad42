/**
 * The file of `export` and `apply`: tenants and the settings of keys, in YAML or JSON. A field that is absent does not
 * change; null removes a value. Keys are named by their prefix: the file has no secret, so it can make no key.
 */
import { Effect, Result, Schema } from "effect"
import { parse, stringify } from "yaml"
import { priorities } from "../src/domain/Caller.ts"
import type { BudgetState, KeyOverview, Registry, TenantInfo } from "../src/admin/Registry.ts"
import { FileInvalid } from "./errorMessages.ts"

const optional = Schema.optionalKey
const Amount = Schema.NullOr(Schema.Int)

const Budgets = Schema.Struct({
  daily: optional(Amount),
  monthly: optional(Amount),
  total: optional(Amount)
})

const Key = Schema.Struct({
  prefix: Schema.String,
  /** for the reader: a key keeps its name */
  name: optional(Schema.String),
  enabled: optional(Schema.Boolean),
  rpm: optional(Amount),
  tpm: optional(Amount),
  concurrent: optional(Amount),
  priority: optional(Schema.Literals(priorities)),
  budgets: optional(Budgets),
  end_user_header: optional(Schema.NullOr(Schema.String)),
  /** the days that prompts are stored; true turns the log on and does not change the days */
  prompt_log: optional(Schema.Union([Schema.Boolean, Schema.Int]))
})

const Tenant = Schema.Struct({
  name: Schema.String,
  enabled: optional(Schema.Boolean),
  rpm: optional(Schema.Int),
  tpm: optional(Schema.Int),
  concurrent: optional(Schema.Int),
  weight: optional(Schema.Int),
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
export type DeclaredBudgets = typeof Budgets.Type

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

const budgetsOf = (states: ReadonlyArray<BudgetState>): DeclaredBudgets => {
  const of = (wanted: BudgetState["period"]) => states.find(({ period }) => period === wanted)?.budget ?? null
  return { daily: of("day"), monthly: of("month"), total: of("total") }
}

const declaredKey = (key: KeyOverview): DeclaredKey => ({
  prefix: key.prefix,
  name: key.name,
  enabled: key.status !== "disabled",
  rpm: key.rpm,
  tpm: key.tpm,
  concurrent: key.concurrent,
  priority: key.priority,
  budgets: budgetsOf(key.budgets),
  end_user_header: key.endUserHeader,
  prompt_log: key.promptLog ? (key.promptLogDays ?? true) : false
})

/** A tenant with the budgets that its keys share. */
export type TenantState = TenantInfo & { readonly budgets: ReadonlyArray<BudgetState> }

/** All tenants and keys, as they are now. */
export const readState = Effect.fnUntraced(function* (registry: Registry["Service"]) {
  const tenants = yield* Effect.forEach(yield* registry.listTenants, (tenant) =>
    Effect.map(registry.showTenantBudgets(tenant.name), (budgets): TenantState => ({ ...tenant, budgets }))
  )
  return { tenants, keys: yield* registry.listKeys() }
})

/** What is in force now. Revoked keys are left out: nothing of them can change. */
export const declarationOf = (
  tenants: ReadonlyArray<TenantState>,
  keys: ReadonlyArray<KeyOverview>
): Declaration => ({
  version: 1,
  tenants: tenants.map((tenant) => ({
    name: tenant.name,
    enabled: tenant.status === "active",
    rpm: tenant.rpm,
    tpm: tenant.tpm,
    concurrent: tenant.concurrent,
    weight: tenant.weight,
    models: tenant.allowAllModels ? "all" : [...tenant.allowedModels],
    aliases: Object.fromEntries(tenant.modelAliases.map(({ alias, model }) => [alias, model])),
    budgets: budgetsOf(tenant.budgets),
    keys: keys.filter((key) => key.tenant === tenant.name && key.status !== "revoked").map(declaredKey)
  }))
})

export const writeDeclaration = (declaration: Declaration): string =>
  `# tollgate export. A field that is absent does not change; null removes a value. No secret is here.\n${stringify(
    declaration,
    { lineWidth: 0 }
  )}`
