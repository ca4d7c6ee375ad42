/** Prints tenants, keys, limits and budgets as tables. */
import { Record, Struct } from "effect"
import type { BudgetState, KeyInfo, KeyOverview, TenantInfo } from "../src/admin/rows.ts"
import type { EffectiveLimits } from "../src/domain/Limits.ts"
import { eachUserFields, keyTexts } from "../src/domain/attributes.ts"
import { disabledTenant, noKeyModels, noModels } from "./modelHints.ts"
import { amount, type Cell, endCell, factsOf, tableOf } from "./terminal.ts"

/** `num_ctx 32,768, think off, system` */
const defaultsText = ({ name: _name, system, ...values }: TenantInfo["aliasDefaults"][number]): string =>
  [
    ...Object.entries(values).map(([option, value]) => `${option} ${plainly(value)}`),
    ...(system === undefined ? [] : ["system"])
  ].join(", ")

export const tenantTable = (tenants: ReadonlyArray<TenantInfo>) =>
  tableOf(tenants, {
    NAME: ({ name }) => name,
    STATUS: ({ status }) => status,
    RPM: ({ rpm }) => rpm,
    TPM: ({ tpm }) => tpm,
    CONCURRENT: ({ concurrent }) => concurrent,
    MODELS: ({ allowAllModels, allowedModels }) => (allowAllModels ? "all" : allowedModels),
    ALIASES: ({ aliasDefaults, modelAliases }) =>
      modelAliases.map(({ alias, model }) => {
        const defaults = aliasDefaults.find(({ name }) => name === alias)
        return `${alias}=${model}${defaults === undefined ? "" : ` (${defaultsText(defaults)})`}`
      }),
    ...(tenants.every(({ modelRules }) => modelRules.length === 0)
      ? {}
      : {
          "MODEL LIMITS": ({ modelRules }: TenantInfo) =>
            modelRules.map((rule) => `${rule.name} (${ruleText(rule)})`)
        })
  })

/** The budget with the least left, as `1,200 of 5,000 a day`. */
const tightest = (states: ReadonlyArray<BudgetState>): string => {
  const left = states.flatMap(({ budget, extra, period, spent }) =>
    budget === null ? [] : [{ budget: budget + extra, period, left: Math.max(0, budget + extra - spent) }]
  )
  const [first] = left.toSorted((one, other) => one.left - other.left)
  if (first === undefined) return "-"
  return `${amount(first.left)} of ${amount(first.budget)} ${first.period === "total" ? "in all" : `a ${first.period}`}`
}

const ofPromptLog = ({ promptLog, promptLogDays }: KeyInfo): string =>
  promptLog ? (promptLogDays === null ? "on" : `${promptLogDays} days`) : "off"

/** The keys with what decides whether they work. Limits: requests and tokens a minute, requests at a time. */
export const keyOverviewTable = (keys: ReadonlyArray<KeyOverview>) =>
  tableOf(keys, {
    PREFIX: ({ prefix }) => prefix,
    STATUS: ({ status, tenantDisabled }) => (tenantDisabled ? "tenant off" : status),
    TENANT: ({ tenant }) => tenant,
    NAME: ({ name }) => name,
    SCOPES: ({ scopes }) => scopes.join(","),
    LIMITS: ({ effective: { concurrent, rpm, tpm } }) => [rpm, tpm, concurrent].map(amount).join(" / "),
    "BUDGET LEFT": ({ budgets }) => tightest(budgets),
    "LAST USED": ({ lastUsed }) => lastUsed,
    EXPIRES: ({ expires }) => endCell(expires),
    PROMPTS: ofPromptLog
  })

/** Attributes whose line in `show-key` is more than their value. */
const shownAttributes: { readonly [attribute: string]: (key: KeyOverview) => string } = {
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

const optionOfEach = (field: (typeof eachUserFields)[number]): string =>
  keyTexts[field].name.split("--")[1] ?? ""

/** `blocked, rpm 5, daily 20,000` */
const ruleText = ({ blocked, ...rule }: KeyInfo["userRules"][number]) =>
  [
    ...(blocked === true ? ["blocked"] : []),
    ...Object.entries(Struct.omit(rule, ["name"])).map(([option, value]) => `${option} ${plainly(value)}`)
  ].join(", ")

/** An extra budget that adds something. */
export const extraFacts = ({
  budgets,
  extraBudget
}: Pick<KeyOverview, "budgets" | "extraBudget">): ReadonlyArray<[string, Cell]> =>
  extraBudget === null || budgets.every(({ extra }) => extra === 0)
    ? []
    : [
        ["extra budget", `${amount(extraBudget.tokens)} tokens`],
        ["it ends", endCell(extraBudget.until)]
      ]

/** One key, a line for each fact and attribute. */
export const keyFacts = (key: KeyOverview) =>
  factsOf([
    ["prefix", key.prefix],
    ["status", key.status],
    ["tenant", key.tenantDisabled ? `${key.tenant} (disabled)` : key.tenant],
    ["name", key.name],
    ["scopes", key.scopes],
    ...Record.toEntries(keyTexts).flatMap(([attribute, { label }]): ReadonlyArray<[string, Cell]> =>
      label === undefined
        ? []
        : [[label, shownAttributes[attribute]?.(key) ?? plainly(Reflect.get(key, attribute))]]
    ),
    ...eachUserFields.flatMap((field): ReadonlyArray<[string, string]> =>
      key[field] === null ? [] : [["each user", `${optionOfEach(field)} ${amount(key[field])}`]]
    ),
    ...key.userRules.map((rule): [string, string] => [`user ${rule.name}`, ruleText(rule)]),
    ...key.modelRules.map((rule): [string, string] => [`model ${rule.name}`, ruleText(rule)]),
    ...key.budgets.map(({ budget, extra, period, spent }): [string, string] => [
      `budget, ${period}`,
      `${amount(spent)} of ${amount(budget)}${extra === 0 ? "" : ` and ${amount(extra)} more`} spent`
    ]),
    ...extraFacts(key),
    ["created", key.created],
    ["expires", endCell(key.expires, "never")],
    ["last used", key.lastUsed ?? "never"]
  ])

/** Why a key that looks right does not work. */
export const keyHints = (key: KeyOverview): ReadonlyArray<string> => [
  ...(key.status === "active" ? [] : [`The key is ${key.status}: every request gets 401.`]),
  ...(key.tenantDisabled ? [disabledTenant(key.tenant)] : []),
  ...(key.tenantWithoutModels ? [noModels] : []),
  ...(key.ownModels?.length === 0 ? [noKeyModels] : []),
  ...key.budgets.flatMap(({ period, state }) =>
    state === "spent" ? [`The budget (${period}) is spent: model requests get 429.`] : []
  )
]

export const keyTable = (keys: ReadonlyArray<KeyInfo>) =>
  tableOf(keys, {
    PREFIX: ({ prefix }) => prefix,
    STATUS: ({ status }) => status,
    NAME: ({ name }) => name,
    CREATED: ({ created }) => created,
    EXPIRES: ({ expires }) => endCell(expires)
  })

const inherited = (value: number | null) => value ?? "tenant's"

export const limitTable = (limits: Pick<KeyInfo, keyof EffectiveLimits>) =>
  tableOf([limits], {
    RPM: ({ rpm }) => inherited(rpm),
    TPM: ({ tpm }) => inherited(tpm),
    CONCURRENT: ({ concurrent }) => inherited(concurrent)
  })

/** What one end user or one model has of its own. */
export const ruleTable = (
  of: string,
  rule: object,
  options: ReadonlyArray<string> = eachUserFields.map(optionOfEach)
) =>
  tableOf([rule], {
    OF: () => of,
    ...Object.fromEntries(
      options.map((option) => [option.toUpperCase(), (rule: object) => Reflect.get(rule, option) ?? null])
    )
  })

export const eachUserTable = (key: KeyInfo) =>
  ruleTable("each user", Object.fromEntries(eachUserFields.map((field) => [optionOfEach(field), key[field]])))

export const budgetTable = (states: ReadonlyArray<BudgetState>) =>
  tableOf(states, {
    PERIOD: ({ period }) => period,
    BUDGET: ({ budget }) => budget,
    ...(states.every(({ extra }) => extra === 0) ? {} : { EXTRA: ({ extra }: BudgetState) => extra }),
    SPENT: ({ spent }) => spent,
    LEFT: ({ budget, extra, spent }) => (budget === null ? null : Math.max(0, budget + extra - spent)),
    STATE: ({ state }) => state
  })
