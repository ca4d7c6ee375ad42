import { Effect, type Layer, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Backend } from "../../src/backend/Backend.ts"
import type { Model } from "../../src/domain/Model.ts"
import { Catalog } from "../../src/gates/models/Catalog.ts"
import { Registry, type TenantInfo } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { namesOf } from "../modelHints.ts"
import { minute, show, table } from "../terminal.ts"

interface Listed {
  readonly name: string
  readonly size: number | null
  readonly modified: string | null
  /** with a tenant only: whether a request for the name is served */
  readonly effective?: boolean
  readonly aliasOf?: string
}

const listedOf = (models: ReadonlyArray<Model>, tenant: TenantInfo | undefined): ReadonlyArray<Listed> => {
  const listed = models.map(({ modifiedAt, name, size }) => ({ name, size, modified: modifiedAt }))
  if (tenant === undefined) return listed
  const [catalog, names] = [new Catalog(models), namesOf(tenant)]
  const usable = new Set(catalog.offered(names).map(({ name }) => name))
  const aliases = tenant.modelAliases.map(({ alias, model }) => {
    const installed = catalog.find(model)
    return {
      name: alias,
      size: installed?.size ?? null,
      modified: installed?.modifiedAt ?? null,
      aliasOf: model
    }
  })
  return [...listed, ...aliases].map((one) => ({
    ...one,
    // A model of the same name wins over an alias, which then leads nowhere.
    effective: "aliasOf" in one ? catalog.resolve(names, one.name)?.alias !== undefined : usable.has(one.name)
  }))
}

const showTenant = (tenant: string) => Effect.flatMap(Registry, (registry) => registry.showTenant(tenant))

const formatDate = (text: string): string => {
  const date = new Date(text)
  return Number.isNaN(date.getTime()) ? text : minute(date)
}

/** `registry` is built only when a tenant is named, because the list itself needs no database. */
export const makeListModels = <E>(registry: Layer.Layer<Registry, E>) =>
  Command.make(
    "list-models",
    { tenant: Flag.optional(flags.tenant) },
    Effect.fnUntraced(function* (given) {
      const backend = yield* Backend
      const tenant = Option.isSome(given.tenant)
        ? Option.some(yield* showTenant(given.tenant.value).pipe(Effect.provide(registry)))
        : Option.none()
      const models = yield* backend.models
      const listed = listedOf(models, Option.getOrUndefined(tenant))
      const headers = ["MODEL", "MODIFIED (UTC)", "GB", ...(Option.isSome(tenant) ? ["USABLE"] : [])]
      const rows = listed.map((model) => [
        model.aliasOf === undefined ? model.name : `${model.name} = ${model.aliasOf}`,
        model.modified === null ? "-" : formatDate(model.modified),
        model.size === null ? "-" : (model.size / 1e9).toFixed(2),
        ...(model.effective === undefined ? [] : [model.effective ? "yes" : "no"])
      ])
      yield* show(listed, listed.length === 0 ? "no models" : table(headers, rows))
    })
  ).pipe(
    Command.withDescription(
      "List the models of the model server; with --tenant, also which of them the tenant may use, and its aliases"
    ),
    Command.withExamples([
      { command: "tollgate list-models" },
      { command: "tollgate list-models --tenant acme" }
    ])
  )
