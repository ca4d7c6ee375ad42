/** Which models a tenant may use, and under which other names, as they are stored. */
import { Effect } from "effect"
import type { TenantChange } from "../domain/attributes.ts"
import { withoutDefaultTag } from "../domain/modelName.ts"
import { mustBe } from "./Errors.ts"
import { type ModelsChange, type TenantInfo, withEntry } from "./rows.ts"
import * as Values from "./Values.ts"

type Aliases = TenantInfo["modelAliases"]

/** `fast:latest` is stored as `fast`. The last of several with one name counts. */
const storedAliases = (given: Aliases) =>
  Effect.map(
    Effect.forEach(given, ({ alias: name, model: target }) =>
      Effect.gen(function* () {
        const alias = withoutDefaultTag(yield* Values.validate("alias", Values.aliasName, name))
        const model = yield* Values.validate("alias", Values.modelName, target)
        if (withoutDefaultTag(model) === alias) {
          return yield* mustBe("alias", "another name than that of its model")
        }
        return [alias, { alias, model }] as const
      })
    ),
    (aliases) => [...new Map(aliases).values()]
  )

/** The change with each model once, and with aliases as they are stored. */
export const storedModels = Effect.fnUntraced(function* ({
  aliasDefaults,
  allowedModels,
  modelAliases,
  ...change
}: TenantChange) {
  return {
    ...change,
    ...(allowedModels === undefined ? {} : { allowedModels: [...new Set(allowedModels)] }),
    ...(aliasDefaults === undefined
      ? {}
      : { aliasDefaults: aliasDefaults.map((one) => ({ ...one, name: withoutDefaultTag(one.name) })) }),
    ...(modelAliases === undefined ? {} : { modelAliases: yield* storedAliases(modelAliases) })
  }
})

/** What `set-models` changes, as attributes of the tenant. */
export const modelAttributes = Effect.fnUntraced(function* (
  tenant: TenantInfo,
  {
    add = [],
    aliasDefaults = {},
    aliases = {},
    allowAll,
    models,
    remove = [],
    removeAliases = []
  }: ModelsChange
) {
  const changed = new Map(tenant.modelAliases.map((alias) => [alias.alias, alias]))
  for (const alias of removeAliases) {
    if (!changed.delete(withoutDefaultTag(alias))) {
      return yield* mustBe("remove-alias", `an alias of the tenant, and ${alias} is none`)
    }
  }
  const listed = new Map((models ?? tenant.allowedModels).map((model) => [withoutDefaultTag(model), model]))
  for (const model of remove) {
    if (!listed.delete(withoutDefaultTag(model))) {
      return yield* mustBe("remove", `models of the allowlist, and ${model} is none`)
    }
  }
  for (const model of add) {
    const name = withoutDefaultTag(model)
    listed.set(name, listed.get(name) ?? model)
  }
  const changesList = models !== undefined || add.length > 0 || remove.length > 0
  const given = Object.entries(aliases).map(([alias, model]) => ({ alias, model }))
  let defaults: TenantInfo["aliasDefaults"] = tenant.aliasDefaults.filter(({ name }) => changed.has(name))
  for (const alias of yield* storedAliases(given)) {
    changed.set(alias.alias, alias)
    defaults = withEntry(defaults, alias.alias, aliasDefaults)
  }
  return {
    ...(changesList ? { allowedModels: [...listed.values()] } : {}),
    ...(allowAll === undefined ? {} : { allowAllModels: allowAll }),
    modelAliases: [...changed.values()],
    aliasDefaults: defaults
  }
})
