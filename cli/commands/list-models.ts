import { Effect, type Layer, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Backend } from "../../src/backend/Backend.ts"
import type { Model } from "../../src/domain/Model.ts"
import { Catalog } from "../../src/gates/models/Catalog.ts"
import { Registry, type TenantInfo } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { minute, show, table } from "../terminal.ts"

/** The same rule as for requests. */
const usable = (tenant: TenantInfo, models: ReadonlyArray<Model>): ReadonlySet<string> =>
  new Set(
    new Catalog(models)
      .effective(tenant.allowAllModels ? "all" : new Set(tenant.allowedModels))
      .map((model) => model.name)
  )

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
      const effective = Option.match(tenant, {
        onNone: () => new Set(),
        onSome: (info) => usable(info, models)
      })
      const listed = models.map((model) => ({
        name: model.name,
        size: model.size,
        modified: model.modifiedAt,
        ...(Option.isSome(tenant) ? { effective: effective.has(model.name) } : {})
      }))
      const headers = ["MODEL", "MODIFIED (UTC)", "GB", ...(Option.isSome(tenant) ? ["USABLE"] : [])]
      const rows = listed.map((model) => [
        model.name,
        formatDate(model.modified),
        (model.size / 1e9).toFixed(2),
        ...(model.effective === undefined ? [] : [model.effective ? "yes" : "no"])
      ])
      yield* show(listed, listed.length === 0 ? "no models" : table(headers, rows))
    })
  ).pipe(
    Command.withDescription(
      "List the models of the model server; with --tenant, also which of them the tenant may use"
    ),
    Command.withExamples([
      { command: "tollgate list-models" },
      { command: "tollgate list-models --tenant acme" }
    ])
  )
