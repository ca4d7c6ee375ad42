/** Reads keys with all that decides whether they work now. */
import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { readBudgets } from "./budgets.ts"
import { RegistryDown } from "./Errors.ts"
import { KeyOverview } from "./Registry.ts"
import { keyColumns, rowsOf } from "./rows.ts"

const decode = rowsOf(KeyOverview)

/** The keys that `where` selects. Budgets are read for each key, by the same query as everywhere. */
export const readKeys = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, where: Statement.Fragment) {
  const found = yield* Effect.flatMap(
    sql`
      SELECT ${keyColumns(sql)},
        json_build_object('rpm', coalesce(k.rpm, t.rpm), 'tpm', coalesce(k.tpm, t.tpm),
          'concurrent', coalesce(k.concurrent, t.concurrent)) AS effective,
        t.disabled AS "tenantDisabled",
        NOT t.allow_all_models AND cardinality(t.allowed_models) = 0 AS "tenantWithoutModels",
        (SELECT max(a.arrived_at) FROM audit_log a WHERE a.key_prefix = k.prefix) AS "lastUsed"
      FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE ${where} ORDER BY t.name, k.created_at, k.prefix`,
    decode
  )
  return yield* Effect.forEach(found, ({ lastUsed, ...key }) =>
    Effect.map(readBudgets(sql, key.prefix), (states) => ({
      ...key,
      budgets: states.filter(({ budget }) => budget !== null),
      lastUsed
    }))
  ).pipe(Effect.catchTag("UnknownKey", (cause) => new RegistryDown({ cause })))
})
