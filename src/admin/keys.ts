/** Reads keys with all that decides whether they work now. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Fragment } from "effect/sql/Statement"
import { readBudgets } from "./budgets.ts"
import { RegistryDown, UnknownKey } from "./Errors.ts"
import { overviewOf, overviewRows } from "./rows.ts"
import * as Values from "./Values.ts"

const columnsOf = (sql: SqlClient.SqlClient, keyColumns: Fragment) => sql`${keyColumns},
  coalesce(k.rpm, t.rpm) AS effective_rpm, coalesce(k.tpm, t.tpm) AS effective_tpm,
  coalesce(k.concurrent, t.concurrent) AS effective_concurrent, t.disabled AS tenant_disabled,
  NOT t.allow_all_models AND cardinality(t.allowed_models) = 0 AS tenant_without_models,
  (SELECT max(a.arrived_at) FROM audit_log a WHERE a.key_prefix = k.prefix) AS last_used`

/** Budgets are read for each key, by the same query as everywhere. */
const overviewsOf = (sql: SqlClient.SqlClient, rows: ReadonlyArray<unknown>) =>
  Effect.flatMap(overviewRows(rows), (found) =>
    Effect.forEach(found, (row) =>
      Effect.map(readBudgets(sql, row.prefix), (states) =>
        overviewOf(
          row,
          states.filter(({ budget }) => budget !== null)
        )
      )
    )
  )

/** The keys of a tenant, or of all tenants. */
export const readKeys = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  keyColumns: Fragment,
  tenant: string | undefined
) {
  const rows = yield* sql`
    SELECT ${columnsOf(sql, keyColumns)} FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
    WHERE ${tenant ?? null}::text IS NULL OR t.name = ${tenant ?? null}
    ORDER BY t.name, k.created_at, k.prefix`
  return yield* overviewsOf(sql, rows).pipe(
    Effect.catchTag("UnknownKey", (cause) => Effect.fail(new RegistryDown({ cause })))
  )
})

export const readKey = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  keyColumns: Fragment,
  given: string
) {
  const prefix = yield* Values.validate("prefix", Values.prefix, given)
  const rows = yield* sql`
    SELECT ${columnsOf(sql, keyColumns)} FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
    WHERE k.prefix = ${prefix}`
  const [key] = yield* overviewsOf(sql, rows)
  return key ?? (yield* new UnknownKey({ prefix }))
})
