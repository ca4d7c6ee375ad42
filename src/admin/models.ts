/** Writes which models a tenant may use, and under which other names. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { Fragment } from "effect/sql/Statement"
import { withoutDefaultTag } from "../gates/models/Catalog.ts"
import { InvalidValue } from "./Errors.ts"
import type { ModelsChange } from "./Registry.ts"
import * as Values from "./Values.ts"

const Stored = Schema.Array(Schema.Struct({ model_aliases: Schema.Record(Schema.String, Schema.String) }))
const decodeStored = Schema.decodeUnknownEffect(Stored)

/** The aliases after the change. `fast:latest` is stored as `fast`. */
const changedAliases = Effect.fnUntraced(function* (
  stored: { readonly [alias: string]: string },
  { aliases = {}, removeAliases = [] }: ModelsChange
) {
  const changed = new Map(Object.entries(stored))
  for (const alias of removeAliases) {
    if (!changed.delete(withoutDefaultTag(alias))) {
      return yield* new InvalidValue({ field: "remove-alias", expected: "an alias of the tenant" })
    }
  }
  for (const [given, model] of Object.entries(aliases)) {
    const alias = withoutDefaultTag(yield* Values.validate("alias", Values.aliasName, given))
    const target = yield* Values.validate("alias", Values.aliasTarget, model)
    if (withoutDefaultTag(target) === alias) {
      return yield* new InvalidValue({ field: "alias", expected: "another name than that of its model" })
    }
    changed.set(alias, target)
  }
  return yield* Values.validate("alias", Values.aliases, Object.fromEntries(changed))
})

/** Returns the row of the tenant with `columns`, or no row. */
export const writeModels = (
  sql: SqlClient.SqlClient,
  columns: Fragment,
  tenant: string,
  change: ModelsChange
) =>
  sql.withTransaction(
    Effect.gen(function* () {
      const models =
        change.models === undefined
          ? null
          : [...new Set(yield* Values.validate("models", Values.modelList, change.models))]
      const [stored] = yield* Effect.flatMap(
        sql`SELECT model_aliases FROM tenants WHERE name = ${tenant} FOR UPDATE`,
        decodeStored
      )
      if (stored === undefined) return []
      const aliases = yield* changedAliases(stored.model_aliases, change)
      // As JSON text, because a model name may contain the separator of an array.
      const list = models === null ? null : JSON.stringify(models)
      return yield* sql`
        UPDATE tenants SET
          allow_all_models = coalesce(${change.allowAll ?? null}::boolean, allow_all_models),
          allowed_models = CASE WHEN ${list}::text IS NULL THEN allowed_models
            ELSE ARRAY(SELECT jsonb_array_elements_text(${list}::text::jsonb)) END,
          model_aliases = ${JSON.stringify(aliases)}::text::jsonb
        WHERE name = ${tenant} RETURNING ${columns}`
    })
  )
