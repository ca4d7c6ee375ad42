/** Prints tenants, keys, limits and budgets as tables. */
import { Record } from "effect"
import type { BudgetState, KeyInfo, KeyOverview, TenantInfo } from "../src/admin/rows.ts"
import type { EffectiveLimits } from "../src/domain/Limits.ts"
import { eachUserFields, keyTexts } from "../src/domain/settings.ts"
import { disabledTenant, noKeyModels, noModels } from "./modelHints.ts"
import { amount, minute, padded, tableOf } from "./terminal.ts"

export const tenantTable = (tenants: ReadonlyArray<TenantInfo>): string =>
  tableOf(tenants, {
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status,
    RPM: ({ rpm }) => amount(rpm),
    TPM: ({ tpm }) => amount(tpm),
    CONCURRENT: ({ concurrent }) => amount(concurrent),
    MODELS: ({ allowAllModels, allowedModels }) => (allowAllModels ? "all" : allowedModels.join(", ") || "-"),
    ALIASES: ({ modelAliases }) =>
      modelAliases.map(({ alias, model }) => `${alias}=${model}`).join(", ") || "-"
  })

/** The budget with the least left, as `1,200 of 5,000 a day`. */
const tightest = (states: ReadonlyArray<BudgetState>): string => {
  const left = states.flatMap(({ budget, period, spent }) =>
    budget === null ? [] : [{ budget, period, left: Math.max(0, budget - spent) }]
  )
  const [first] = left.toSorted((one, other) => one.left - other.left)
  if (first === undefined) return "-"
  return `${amount(first.left)} of ${amount(first.budget)} ${first.period === "total" ? "in all" : `a ${first.period}`}`
}

const ofPromptLog = ({ promptLog, promptLogDays }: KeyInfo): string =>
  promptLog ? (promptLogDays === null ? "on" : `${promptLogDays} days`) : "off"

/** The keys with what decides whether they work. Limits: requests and tokens a minute, requests at a time. */
export const keyOverviewTable = (keys: ReadonlyArray<KeyOverview>): string =>
  tableOf(keys, {
    PREFIX: ({ prefix }) => prefix,
    STATUS: ({ status, tenantDisabled }) => (tenantDisabled ? "tenant off" : status),
    TENANT: ({ tenant }) => tenant,
    NAME: ({ name }) => name,
    SCOPES: ({ scopes }) => scopes.join(","),
    LIMITS: ({ effective: { concurrent, rpm, tpm } }) => [rpm, tpm, concurrent].map(amount).join(" / "),
    "BUDGET LEFT": ({ budgets }) => tightest(budgets),
    "LAST USED (UTC)": ({ lastUsed }) => minute(lastUsed),
    "EXPIRES (UTC)": ({ expires }) => minute(expires),
    PROMPTS: ofPromptLog
  })

/** Settings whose line in `show-key` is more than their value. */
const shownSettings: { readonly [setting: string]: (key: KeyOverview) => string } = {
  rpm: (key) => ownOrTenants(key.rpm, key.effective.rpm),
  tpm: (key) => ownOrTenants(key.tpm, key.effective.tpm),
  concurrent: (key) => ownOrTenants(key.concurrent, key.effective.concurrent),
  endUserHeader: ({ endUserHeader, hashUsers }) =>
    endUserHeader === null
      ? "from the request"
      : `from the header ${endUserHeader}${hashUsers ? ", hashed" : ""}`,
  ownModels: ({ ownModels }) => (ownModels === null ? "the tenant's" : ownModels.join(", ") || "none"),
  promptLog: ofPromptLog
}

const ownOrTenants = (value: number | null, effective: number) =>
  value === null ? `${amount(effective)} (the tenant's)` : amount(value)

/** A number, a word, a list or nothing. */
export const plainly = (value: unknown): string =>
  typeof value === "number" ? amount(value) : value === null ? "-" : String(value)

/** One key, a line for each fact and setting. */
export const keyFacts = (key: KeyOverview): string => {
  const settings = Record.toEntries(keyTexts).flatMap(([setting, { label }]) =>
    label === undefined ? [] : [[label, shownSettings[setting]?.(key) ?? plainly(Reflect.get(key, setting))]]
  )
  const lines = [
    ["prefix", key.prefix],
    ["status", key.status],
    ["tenant", key.tenantDisabled ? `${key.tenant} (disabled)` : key.tenant],
    ["name", key.name],
    ["scopes", key.scopes.join(", ")],
    ...settings,
    ...eachUserFields.flatMap((field) =>
      key[field] === null
        ? []
        : [["each user", `${keyTexts[field].name.split("--")[1]} ${amount(key[field])}`]]
    ),
    ...key.budgets.map((state) => [
      `budget, ${state.period}`,
      `${amount(state.spent)} of ${amount(state.budget)} spent`
    ]),
    ["created", `${minute(key.created)} UTC`],
    ["expires", key.expires === null ? "never" : `${minute(key.expires)} UTC`],
    ["last used", key.lastUsed === null ? "never" : `${minute(key.lastUsed)} UTC`]
  ]
  return lines.map(([name = "", value = ""]) => `${padded(name, 20)}${value}`).join("\n")
}

/** Why a key that looks right does not work. */
export const keyHints = (key: KeyOverview): ReadonlyArray<string> => [
  ...(key.status === "active" ? [] : [`The key is ${key.status}: every request gets 401.`]),
  ...(key.tenantDisabled ? [disabledTenant(key.tenant)] : []),
  ...(key.tenantWithoutModels ? [noModels] : []),
  ...(key.ownModels?.length === 0 ? [noKeyModels] : []),
  ...key.budgets.flatMap(({ budget, period, spent }) =>
    budget !== null && spent >= budget ? [`The budget (${period}) is spent: model requests get 429.`] : []
  )
]

export const keyTable = (keys: ReadonlyArray<KeyInfo>): string =>
  tableOf(keys, {
    PREFIX: ({ prefix }) => prefix,
    STATUS: ({ status }) => status,
    NAME: ({ name }) => name,
    "CREATED (UTC)": ({ created }) => minute(created),
    "EXPIRES (UTC)": ({ expires }) => minute(expires)
  })

const inherited = (value: number | null): string => (value === null ? "tenant's" : amount(value))

export const limitTable = (limits: Pick<KeyInfo, keyof EffectiveLimits>): string =>
  tableOf([limits], {
    RPM: ({ rpm }) => inherited(rpm),
    TPM: ({ tpm }) => inherited(tpm),
    CONCURRENT: ({ concurrent }) => inherited(concurrent)
  })

export const eachUserTable = (key: Pick<KeyInfo, (typeof eachUserFields)[number]>): string =>
  tableOf([key], {
    "EACH USER: RPM": ({ eachUserRpm }) => amount(eachUserRpm),
    TPM: ({ eachUserTpm }) => amount(eachUserTpm),
    CONCURRENT: ({ eachUserConcurrent }) => amount(eachUserConcurrent),
    DAILY: ({ eachUserDaily }) => amount(eachUserDaily),
    MONTHLY: ({ eachUserMonthly }) => amount(eachUserMonthly),
    TOTAL: ({ eachUserTotal }) => amount(eachUserTotal)
  })

export const budgetTable = (states: ReadonlyArray<BudgetState>): string =>
  tableOf(states, {
    PERIOD: ({ period }) => period,
    BUDGET: ({ budget }) => amount(budget),
    SPENT: ({ spent }) => amount(spent),
    LEFT: ({ budget, spent }) => amount(budget === null ? null : Math.max(0, budget - spent)),
    STATE: ({ state }) => state ?? "-"
  })
