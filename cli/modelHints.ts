/** What an operator should know about names of models that the model server does not have. */
import { Context, Effect, Layer } from "effect"
import type { TenantInfo } from "../src/admin/rows.ts"
import { Backend } from "../src/backend/Backend.ts"
import type { Caller } from "../src/domain/Caller.ts"
import { Catalog } from "../src/gates/models/Catalog.ts"

/** What decides which names a tenant has, as for requests. */
export const namesOf = (tenant: TenantInfo): Pick<Caller, "aliases" | "models"> => ({
  models: tenant.allowAllModels ? "all" : new Set(tenant.allowedModels),
  aliases: new Map(tenant.modelAliases.map(({ alias, model }) => [alias, model]))
})

/** The models of the model server; undefined when it does not answer. Only a command that names models asks it. */
export class Installed extends Context.Service<Installed, Effect.Effect<Catalog | undefined>>()(
  "tollgate/cli/Installed"
) {
  static readonly layer = <E>(backend: Layer.Layer<Backend, E>) =>
    Layer.succeed(
      Installed,
      Effect.flatMap(Backend, ({ models }) => models).pipe(
        Effect.timeout("5 seconds"),
        Effect.provide(backend),
        Effect.map((models) => new Catalog(models)),
        Effect.orElseSucceed(() => undefined)
      )
    )
}
export const installedModels = Effect.flatten(Installed)

/** At most this many models are named. */
const maxNamed = 5

/** What is installed under that name with another tag (`llama3.2` is not `llama3.2:3b`), else all that is. */
const missing = (catalog: Catalog, model: string, what: string): string => {
  const [base] = model.split(":")
  const all = catalog.models.map(({ name }) => name)
  const similar = all.filter((name) => name.split(":")[0] === base)
  const named = similar.length > 0 ? similar : all
  const more = named.length > maxNamed ? ` and ${named.length - maxNamed} more` : ""
  const installed = named.length === 0 ? "" : ` Installed: ${named.slice(0, maxNamed).join(", ")}${more}.`
  return `${model} is not installed: requests for ${what} are refused until it is.${installed}`
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
