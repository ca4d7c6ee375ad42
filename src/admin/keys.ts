/** Reads keys with all that decides whether they work now. */
import { Effect, Result } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { listedOf, type UnreadableRow } from "../infra/rows.ts"
import { readBudgets } from "./budgets.ts"
import { RegistryDown } from "./Errors.ts"
import type { KeyOverview } from "./Registry.ts"
import { keyColumns, overviewRows } from "./rows.ts"

/** The keys that `where` selects. Budgets are read for each key, by the same query as everywhere. */
export const readKeys = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, where: Statement.Fragment) {
  const found = yield* Effect.map(
    sql`
      SELECT ${keyColumns(sql)},
        json_build_object('rpm', coalesce(k.rpm, t.rpm), 'tpm', coalesce(k.tpm, t.tpm),
          'concurrent', coalesce(k.concurrent, t.concurrent)) AS effective,
        t.disabled AS "tenantDisabled",
        NOT t.allow_all_models AND cardinality(t.allowed_models) = 0 AS "tenantWithoutModels",
        (SELECT max(a.arrived_at) FROM audit_log a WHERE a.key_prefix = k.prefix) AS "lastUsed"
      FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE ${where} ORDER BY t.name, k.created_at, k.prefix`,
    overviewRows.list
  )
  const withBudgets = ({ lastUsed, ...key }: (typeof found.rows)[number]) =>
    readBudgets(sql, key.prefix).pipe(
      Effect.map((states): Result.Result<KeyOverview, UnreadableRow> => {
        const budgets = states.filter(({ budget }) => budget !== null)
        return Result.succeed({ ...key, budgets, lastUsed })
      }),
      Effect.catchTags({
        UnknownKey: (cause) => Effect.fail(new RegistryDown({ cause })),
        UnreadableRow: (row) => Effect.succeed(Result.fail(row))
      })
    )
  const { rows, unreadable } = listedOf(yield* Effect.forEach(found.rows, withBudgets))
  return { rows, unreadable: [...found.unreadable, ...unreadable] }
})
