/** Compares a declaration with what is in force, and makes the changes that `apply` prints and runs. */
import { Effect, Predicate } from "effect"
import type { BudgetChange, KeyOverview, Registry } from "../src/admin/Registry.ts"
import { type AdminError, UnknownKey } from "../src/admin/Errors.ts"
import { withoutDefaultTag } from "../src/gates/models/Catalog.ts"
import { FileInvalid } from "./errorMessages.ts"
import { givenLimits } from "./flags.ts"
import {
  type Declaration,
  type DeclaredBudgets,
  type DeclaredKey,
  declarationOf,
  type DeclaredTenant,
  type TenantState
} from "./declaration.ts"

type Admin = Registry["Service"]

/** One changed field. `null`: none. */
export interface Change {
  /** `tenant acme` or `key tg_4fJ2kQ9sX` */
  readonly subject: string
  readonly field: string
  readonly before: unknown
  readonly after: unknown
}

type Fields = Readonly<Record<string, unknown>>

const budgetFields = ["budgets.daily", "budgets.monthly", "budgets.total"]

const same = (one: unknown, other: unknown): boolean =>
  one === other || JSON.stringify(one) === JSON.stringify(other)

/** As the database stores it: each model once, aliases without `:latest`. The order of both means nothing. */
const normal = (tenant: DeclaredTenant): DeclaredTenant => ({
  ...tenant,
  ...(tenant.models === undefined || tenant.models === "all"
    ? {}
    : { models: [...new Set(tenant.models)].toSorted() }),
  ...(tenant.aliases === undefined
    ? {}
    : {
        aliases: Object.fromEntries(
          Object.entries(tenant.aliases)
            .map(([alias, model]) => [withoutDefaultTag(alias), model] as const)
            .toSorted(([one], [other]) => (one < other ? -1 : 1))
        )
      })
})

/** The fields of `wanted` that differ; a nested object counts by its own fields. */
const differences = (subject: string, now: Fields, wanted: Fields, under = ""): ReadonlyArray<Change> =>
  Object.entries(wanted).flatMap(([field, after]): ReadonlyArray<Change> => {
    const before = now[field] ?? (field === "budgets" ? {} : null)
    if (after === undefined || same(before, after)) return []
    return field === "budgets" && Predicate.isObject(after) && Predicate.isObject(before)
      ? differences(subject, { ...before }, { ...after }, "budgets.")
      : [{ subject, field: `${under}${field}`, before, after }]
  })

const budgetChange = ({ daily, monthly, total }: DeclaredBudgets): BudgetChange => ({
  ...(daily === undefined ? {} : { day: daily }),
  ...(monthly === undefined ? {} : { month: monthly }),
  ...(total === undefined ? {} : { total })
})

const limitsOf = <A>(wanted: { readonly rpm?: A; readonly tpm?: A; readonly concurrent?: A }) =>
  givenLimits({ rpm: wanted.rpm, tpm: wanted.tpm, concurrent: wanted.concurrent })

const runTenant = Effect.fnUntraced(function* (
  registry: Admin,
  { aliases, budgets, enabled, models, name, weight, ...rest }: DeclaredTenant,
  now: TenantState | undefined,
  changed: ReadonlySet<string>
) {
  const limits = limitsOf(rest)
  if (now === undefined) yield* registry.createTenant({ name, ...limits })
  if (["rpm", "tpm", "concurrent", "weight"].some((field) => changed.has(field))) {
    yield* registry.setTenantLimits(name, { ...limits, ...(weight === undefined ? {} : { weight }) })
  }
  if (models !== undefined && changed.has("models")) {
    yield* registry.setModels(name, models === "all" ? { allowAll: true } : { models, allowAll: false })
  }
  if (aliases !== undefined && changed.has("aliases")) {
    const removeAliases = (now?.modelAliases ?? [])
      .map(({ alias }) => alias)
      .filter((alias) => !Object.hasOwn(aliases, alias))
    yield* registry.setModels(name, { aliases, removeAliases })
  }
  if (budgets !== undefined && budgetFields.some((field) => changed.has(field)))
    yield* registry.setTenantBudgets(name, budgetChange(budgets))
  if (enabled !== undefined && changed.has("enabled")) yield* registry.setTenantEnabled(name, enabled)
})

const runKey = Effect.fnUntraced(function* (
  registry: Admin,
  { budgets, enabled, end_user_header, prefix, priority, prompt_log, ...rest }: DeclaredKey,
  changed: ReadonlySet<string>
) {
  const needed = (field: string) => changed.has(field)
  if (["rpm", "tpm", "concurrent", "priority"].some(needed)) {
    yield* registry.setKeyLimits(prefix, {
      ...limitsOf(rest),
      ...(priority === undefined ? {} : { priority })
    })
  }
  if (budgets !== undefined && budgetFields.some(needed))
    yield* registry.setBudgets(prefix, budgetChange(budgets))
  if (enabled !== undefined && needed("enabled")) yield* registry.setKeyEnabled(prefix, enabled)
  if (end_user_header !== undefined && needed("end_user_header"))
    yield* registry.setEndUserHeader(prefix, end_user_header)
  if (prompt_log !== undefined && needed("prompt_log")) {
    yield* registry.setPromptLog(prefix, {
      on: prompt_log !== false,
      ...(typeof prompt_log === "number" ? { retentionDays: prompt_log } : {})
    })
  }
})

const fieldsOf = (changes: ReadonlyArray<Change>): ReadonlySet<string> =>
  new Set(changes.map(({ field }) => field))

/** Tenants and keys that the file does not name stay as they are. */
export const planOf = Effect.fnUntraced(function* (
  registry: Admin,
  file: string,
  wanted: Declaration,
  tenants: ReadonlyArray<TenantState>,
  keys: ReadonlyArray<KeyOverview>
) {
  const now = declarationOf(tenants, keys)
  const steps: Array<{
    readonly changes: ReadonlyArray<Change>
    readonly run: Effect.Effect<void, AdminError>
  }> = []
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const named = new Set<string>()
  const once = (name: string) =>
    named.has(name) ? invalid(`${name} is there twice`) : Effect.sync(() => void named.add(name))
  for (const tenant of wanted.tenants) {
    const subject = `tenant ${tenant.name}`
    yield* once(subject)
    const present = now.tenants.find(({ name }) => name === tenant.name)
    const { keys: _, ...before } = present === undefined ? { name: null } : normal(present)
    const { keys: declaredKeys = [], ...after } = normal(tenant)
    const changes = differences(subject, before, after)
    if (changes.length > 0) {
      const current = tenants.find(({ name }) => name === tenant.name)
      steps.push({ changes, run: runTenant(registry, tenant, current, fieldsOf(changes)) })
    }
    for (const key of declaredKeys) {
      yield* once(`key ${key.prefix}`)
      const found = keys.find(({ prefix }) => prefix === key.prefix)
      if (found === undefined) return yield* new UnknownKey({ prefix: key.prefix })
      if (found.tenant !== tenant.name) return yield* invalid(`key ${key.prefix} belongs to another tenant`)
      const current = now.tenants.flatMap((one) => one.keys ?? []).find(({ prefix }) => prefix === key.prefix)
      if (current === undefined) return yield* invalid(`key ${key.prefix} is revoked`)
      const { name, prompt_log, ...rest } = key
      // `true` turns the log on and does not change the days.
      const logsAlready = prompt_log === true && typeof current.prompt_log === "number"
      const settings = prompt_log === undefined || logsAlready ? rest : { ...rest, prompt_log }
      if (name !== undefined && name !== found.name)
        return yield* invalid(
          `key ${key.prefix} is named ${JSON.stringify(found.name)}, and a name cannot change`
        )
      const changed = differences(`key ${key.prefix}`, current, settings)
      if (changed.length > 0) {
        steps.push({ changes: changed, run: runKey(registry, key, fieldsOf(changed)) })
      }
    }
  }
  return {
    changes: steps.flatMap(({ changes }) => changes),
    run: registry.atomically(Effect.forEach(steps, ({ run }) => run, { discard: true }))
  }
})
