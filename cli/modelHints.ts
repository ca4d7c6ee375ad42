/** What an operator should know about names of models that the model server does not have. */
import { Effect, type Layer } from "effect"
import type { TenantInfo } from "../src/admin/Registry.ts"
import { Backend } from "../src/backend/Backend.ts"
import type { Caller } from "../src/domain/Caller.ts"
import { Catalog } from "../src/gates/models/Catalog.ts"

/** What decides which names a tenant has, as for requests. */
export const namesOf = (tenant: TenantInfo): Pick<Caller, "aliases" | "models"> => ({
  models: tenant.allowAllModels ? "all" : new Set(tenant.allowedModels),
  aliases: new Map(tenant.modelAliases.map(({ alias, model }) => [alias, model]))
})

/** The models of the model server; undefined when it does not answer. */
export const installedModels = <E>(backend: Layer.Layer<Backend, E>) =>
  Effect.flatMap(Backend, ({ models }) => models).pipe(
    Effect.timeout("5 seconds"),
    Effect.provide(backend),
    Effect.map((models) => new Catalog(models)),
    Effect.orElseSucceed(() => undefined)
  )

const unchecked = "The model server does not answer, so it was not checked that these models are installed."

/** At most this many models are named. */
const maxNamed = 5

/** The installed models of that name with another tag (`llama3.2` is not `llama3.2:3b`), else all. */
const installedInstead = (catalog: Catalog, name: string): string => {
  const [base] = name.split(":")
  const all = catalog.models.map((model) => model.name)
  const similar = all.filter((one) => one.split(":")[0] === base)
  const named = similar.length > 0 ? similar : all
  const more = named.length > maxNamed ? ` and ${named.length - maxNamed} more` : ""
  return named.length === 0 ? "" : ` Installed: ${named.slice(0, maxNamed).join(", ")}${more}.`
}

/** About the models of an allowlist. */
export const allowlistHints = (
  catalog: Catalog | undefined,
  models: ReadonlyArray<string>
): ReadonlyArray<string> =>
  catalog === undefined
    ? models.length === 0
      ? []
      : [unchecked]
    : models.flatMap((name) =>
        catalog.find(name) === undefined
          ? [
              `${name} is not installed: requests for it are refused until it is.${installedInstead(catalog, name)}`
            ]
          : []
      )

/** About aliases of a tenant. */
export const aliasHints = (
  catalog: Catalog | undefined,
  tenant: TenantInfo,
  aliases: Readonly<Record<string, string>>
): ReadonlyArray<string> =>
  catalog === undefined
    ? Object.keys(aliases).length === 0
      ? []
      : [unchecked]
    : Object.entries(aliases).flatMap(([alias, model]) =>
        catalog.find(model) === undefined
          ? [
              `${model} is not installed: requests for ${alias} are refused until it is.${installedInstead(catalog, model)}`
            ]
          : catalog.resolve(namesOf(tenant), alias) === undefined
            ? [`${tenant.name} may not use ${model}: requests for ${alias} are refused.`]
            : []
      )

export const disabledTenant = (name: string): string =>
  `The tenant is disabled: every request gets 401. "tollgate enable-tenant --tenant ${name}" ends that.`

export const noModels = `The tenant may use no model: every model request gets 403. "tollgate set-models" allows some.`

/** Why keys of a tenant that looks right do not work. */
export const tenantHints = (tenant: TenantInfo): ReadonlyArray<string> => [
  ...(tenant.status === "active" ? [] : [disabledTenant(tenant.name)]),
  ...(tenant.allowAllModels || tenant.allowedModels.length > 0 ? [] : [noModels])
]
