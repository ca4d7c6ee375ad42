/** The authenticated key with its limits and grants, as the key store read them from the database. */
import { hashedUser } from "./EndUser.ts"
import type { Budgets, EffectiveLimits } from "./Limits.ts"
import { withoutDefaultTag } from "./modelName.ts"
import type { ModelLimits, PartLimits } from "./Reservation.ts"
import {
  type AliasDefaults,
  eachUserFields,
  type KeyAttributes,
  type TenantAttributes
} from "./attributes.ts"
import { extraBudgetOf, type StoredExtra } from "./storedRules.ts"

export const scopes = ["chat", "embeddings"] as const
export type Scope = (typeof scopes)[number]

/** Which discovered models a tenant may use: all, or the named ones. */
export type ModelGrant = "all" | ReadonlySet<string>

/** What a key may use of its tenant's models, when it has a list of its own. Names are compared as those of requests. */
export const grantOf = (tenant: ModelGrant, own: ReadonlyArray<string> | null): ModelGrant => {
  if (own === null) return tenant
  const names = own.map(withoutDefaultTag)
  if (tenant === "all") return new Set(names)
  const granted = new Set([...tenant].map(withoutDefaultTag))
  return new Set(names.filter((name) => granted.has(name)))
}

/** Names of a tenant for models: alias, without `:latest`, to the name of a model. */
export type ModelAliases = ReadonlyMap<string, string>

/** What an end user may use, who has an account of its own with `limits`. */
export interface UserRule {
  readonly blocked: boolean
  readonly limits?: PartLimits
}

/** What names of end users decide. */
export interface UserRules {
  readonly each: UserRule
  /** by the name that the audit stores */
  readonly own: ReadonlyMap<string, UserRule>
}

/** What a request uses of the attributes of its key and tenant. */
export interface CallerSettings
  extends Pick<KeyAttributes, "priority" | "hashUsers">, Pick<TenantAttributes, "weight"> {
  /** the key's, else the tenant's */
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
  /** what all keys of its tenant share */
  readonly tenantBudgets: Budgets
  readonly models: ModelGrant
  /** absent: none */
  readonly aliases?: ModelAliases
  /** what an alias adds to its requests; absent: none does */
  readonly aliasDefaults?: ReadonlyMap<string, AliasDefaults>
  /** lower-case name of the header with the end user of a request; absent: none */
  readonly endUserHeader?: string
  /** what each end user may use; a limit without a value is the key's. absent: names of end users decide nothing */
  readonly users?: UserRules
  /** what it may use of single models, by their names without `:latest`; absent: all have the same limits */
  readonly modelLimits?: ReadonlyMap<string, ModelLimits>
  /** days to keep prompts and answers; absent when the key has not opted in */
  readonly promptLogDays?: number
}

export interface Caller extends CallerSettings {
  readonly tenantId: string
  readonly tenantName: string
  readonly keyId: string
  /** whose limits and budgets it uses: its own id, or that of the first of the keys that it replaces (`rotate-key`) */
  readonly accountId: string
  /** 12 characters, public */
  readonly keyPrefix: string
  readonly scopes: ReadonlySet<Scope>
}

const budgetsOf = (
  day: number | null,
  week: number | null,
  month: number | null,
  total: number | null,
  stored: typeof StoredExtra.Type = null
): Budgets => {
  const extra = extraBudgetOf(stored)
  return {
    ...(day === null ? {} : { day }),
    ...(week === null ? {} : { week }),
    ...(month === null ? {} : { month }),
    ...(total === null ? {} : { total }),
    ...(extra === undefined ? {} : { extra })
  }
}

const ofOwner = (
  owner: Pick<
    KeyAttributes & TenantAttributes,
    "budgetDaily" | "budgetWeekly" | "budgetMonthly" | "budgetTotal" | "extraBudget"
  >
) =>
  budgetsOf(owner.budgetDaily, owner.budgetWeekly, owner.budgetMonthly, owner.budgetTotal, owner.extraBudget)

/** The rule of an end user. It has a hash when it was made while the key stored hashes. */
export const userRuleOf = (
  { accountId, users }: Pick<Caller, "accountId" | "users">,
  endUser = ""
): UserRule | undefined =>
  users === undefined || users.own.size === 0
    ? users?.each
    : (users.own.get(endUser) ?? users.own.get(hashedUser(accountId, endUser)) ?? users.each)

const usersOf = (key: KeyAttributes, limits: EffectiveLimits): UserRules | undefined => {
  const each = {
    limits: {
      rpm: key.eachUserRpm ?? limits.rpm,
      tpm: key.eachUserTpm ?? limits.tpm,
      concurrent: key.eachUserConcurrent ?? limits.concurrent
    },
    budgets: budgetsOf(key.eachUserDaily, key.eachUserWeekly, key.eachUserMonthly, key.eachUserTotal)
  }
  const hasEach = eachUserFields.some((field) => key[field] !== null)
  if (!hasEach && key.userRules.length === 0) return undefined
  const own = key.userRules.map(({ blocked = false, daily, monthly, name, total, weekly, ...given }) => {
    const budgets = {
      ...each.budgets,
      ...budgetsOf(daily ?? null, weekly ?? null, monthly ?? null, total ?? null)
    }
    const isLimited = hasEach || Object.keys({ ...given, ...budgets }).length > 0
    const rule = isLimited
      ? { blocked, limits: { limits: { ...each.limits, ...given }, budgets } }
      : { blocked }
    return [name, rule] as const
  })
  return { each: { blocked: false, ...(hasEach ? { limits: each } : {}) }, own: new Map(own) }
}

/** A value that the key has not for a model is the tenant's, else that of all models. */
const modelLimitsOf = (
  key: KeyAttributes,
  tenant: TenantAttributes,
  limits: EffectiveLimits
): ReadonlyMap<string, ModelLimits> => {
  const rules = new Map<string, KeyAttributes["modelRules"][number]>()
  for (const rule of [...tenant.modelRules, ...key.modelRules])
    rules.set(rule.name, { ...rules.get(rule.name), ...rule })
  const all = [...rules.values()].map(({ daily = null, name, ...given }) => {
    const own = { name, limits: { ...limits, ...given }, budgets: budgetsOf(daily, null, null, null) }
    return [name, own] as const
  })
  return new Map(all)
}

export const callerSettings = (
  key: KeyAttributes,
  tenant: TenantAttributes,
  promptLogDefaultDays: number
): CallerSettings => {
  const limits = {
    rpm: key.rpm ?? tenant.rpm,
    tpm: key.tpm ?? tenant.tpm,
    concurrent: key.concurrent ?? tenant.concurrent
  }
  const users = usersOf(key, limits)
  const hasModels = tenant.modelRules.length + key.modelRules.length > 0
  return {
    priority: key.priority,
    hashUsers: key.hashUsers,
    weight: tenant.weight,
    limits,
    ...(users === undefined ? {} : { users }),
    ...(hasModels ? { modelLimits: modelLimitsOf(key, tenant, limits) } : {}),
    budgets: ofOwner(key),
    tenantBudgets: ofOwner(tenant),
    models: grantOf(tenant.allowAllModels ? "all" : new Set(tenant.allowedModels), key.ownModels),
    ...(tenant.modelAliases.length === 0
      ? {}
      : { aliases: new Map(tenant.modelAliases.map(({ alias, model }) => [alias, model])) }),
    ...(tenant.aliasDefaults.length === 0
      ? {}
      : { aliasDefaults: new Map(tenant.aliasDefaults.map(({ name, ...defaults }) => [name, defaults])) }),
    ...(key.endUserHeader === null ? {} : { endUserHeader: key.endUserHeader.toLowerCase() }),
    ...(key.promptLog ? { promptLogDays: key.promptLogDays ?? promptLogDefaultDays } : {})
  }
}
