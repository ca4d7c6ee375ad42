/** What an operator should know about names of models that the model server does not have. */
import { Effect } from "effect"
import { type InvalidValue, mustBe } from "../src/admin/Errors.ts"
import type { TenantInfo } from "../src/admin/rows.ts"
import type { Caller } from "../src/domain/Caller.ts"
import { Catalog } from "../src/gates/models/Catalog.ts"
import { isWithin } from "../src/infra/environment.ts"
import { Needs } from "./Needs.ts"

/** What decides which names a tenant has, as for requests. */
export const namesOf = (tenant: TenantInfo): Pick<Caller, "aliases" | "models"> => ({
  models: tenant.allowAllModels ? "all" : new Set(tenant.allowedModels),
  aliases: new Map(tenant.modelAliases.map(({ alias, model }) => [alias, model]))
})

/** The models of the model server; undefined when it does not answer. Only a command that names models asks it. */
export const installedModels = Needs.models.pipe(
  Effect.timeout("5 seconds"),
  Effect.map((models) => new Catalog(models)),
  Effect.orElseSucceed(() => undefined)
)

/** At most this many models are named. */
const maxNamed = 5

/** The installed models whose names are like it (`alpha:7b` like `alfa`), else all that are. */
const nearest = (catalog: Catalog, model: string): string => {
  const baseOf = (name: string) => name.split(":")[0] ?? ""
  const all = catalog.models.map(({ name }) => name)
  const base = baseOf(model)
  const similar = all.filter((name) => isWithin(2, baseOf(name), base) || name.includes(base))
  const named = similar.length > 0 ? similar : all
  const more = named.length > maxNamed ? ` and ${named.length - maxNamed} more` : ""
  return `${named.slice(0, maxNamed).join(", ")}${more}`
}

const missing = (catalog: Catalog, model: string, what: string): string => {
  const installed = catalog.models.length === 0 ? "" : ` Installed: ${nearest(catalog, model)}.`
  return `${model} is not installed: requests for ${what} are refused until it is.${installed}`
}

/** Refuses models that the model server does not have. Without a catalog nothing is known of them. */
export const requireInstalled = (
  catalog: Catalog | undefined,
  option: string,
  models: ReadonlyArray<string>
): Effect.Effect<void, InvalidValue> => {
  const unknown = models.find((model) => catalog !== undefined && catalog.find(model) === undefined)
  if (catalog === undefined || unknown === undefined) return Effect.void
  const meant = catalog.models.length === 0 ? "it has none" : `did you mean ${nearest(catalog, unknown)}?`
  return mustBe(
    option,
    `models of the model server, and ${unknown} is none; ${meant} (--yes allows it before it is there)`
  )
}

/** A hint for each of `names` that needs one. Without a catalog nothing is known of them. */
const hints = <A>(
  catalog: Catalog | undefined,
  names: ReadonlyArray<A>,
  hint: (catalog: Catalog, name: A) => string | undefined
): ReadonlyArray<string> =>
  catalog === undefined
    ? names.slice(0, 1).map(() => unchecked)
    : names.flatMap((name) => hint(catalog, name) ?? [])

const unchecked = "The model server does not answer, so it was not checked that these models are installed."

/** About the models of an allowlist. */
export const allowlistHints = (catalog: Catalog | undefined, models: ReadonlyArray<string>) =>
  hints(catalog, models, (catalog, name) =>
    catalog.find(name) === undefined ? missing(catalog, name, "it") : undefined
  )

/** About aliases of a tenant. */
export const aliasHints = (
  catalog: Catalog | undefined,
  tenant: TenantInfo,
  aliases: Readonly<Record<string, string>>
) =>
  hints(catalog, Object.entries(aliases), (catalog, [alias, model]) =>
    catalog.find(model) === undefined
      ? missing(catalog, model, alias)
      : catalog.resolve(namesOf(tenant), alias) === undefined
        ? `${tenant.name} may not use ${model}: requests for ${alias} are refused.`
        : undefined
  )

export const disabledTenant = (name: string): string =>
  `The tenant is disabled: every request gets 401. "tollgate enable-tenant --tenant ${name}" ends that.`

export const noModels = `The tenant may use no model: every model request gets 403. "tollgate set-models" allows some.`

export const noKeyModels = `The key may use no model: every model request gets 403. "tollgate set-models --key" allows some.`

/** Why keys of a tenant that looks right do not work. */
export const tenantHints = (tenant: TenantInfo): ReadonlyArray<string> => [
  ...(tenant.status === "active" ? [] : [disabledTenant(tenant.name)]),
  ...(tenant.allowAllModels || tenant.allowedModels.length > 0 ? [] : [noModels])
]
