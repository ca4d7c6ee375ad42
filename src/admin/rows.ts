/** Reads rows of tenants and keys, and many rows of the records. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { makeRowReader, type Row, selected } from "../infra/rows.ts"
import { KeySettings, TenantSettings } from "../domain/settings.ts"
import { UnknownTenant } from "./Errors.ts"
import { KeyInfo, KeyOverview, TenantInfo } from "./Registry.ts"

/** As `apply` names them. */
export const tenantNamed = (name: unknown): string => `tenant ${String(name)}`
export const keyNamed = (prefix: unknown): string => `key ${String(prefix)}`

export const nameOfKey = ({ prefix }: Row) => keyNamed(prefix)

export const tenantRows = makeRowReader(({ name }) => tenantNamed(name), TenantInfo)
export const keyRows = makeRowReader(nameOfKey, KeyInfo)
export const overviewRows = makeRowReader(nameOfKey, KeyOverview)

/** The columns of `TenantInfo`, of a row `t` of `tenants`. */
export const tenantColumns = (sql: SqlClient.SqlClient) => sql`
  t.name, ${selected(sql, "t", TenantSettings.fields)},
  CASE WHEN t.disabled THEN 'disabled' ELSE 'active' END AS status, t.created_at AS created`

/** The columns of `KeyInfo`, of a row `k` of `api_keys` and a row `t` of `tenants`. */
export const keyColumns = (sql: SqlClient.SqlClient) => sql`
  k.prefix, k.name, t.name AS tenant, k.scopes, k.created_at AS created, k.expires_at AS expires,
  ${selected(sql, "k", KeySettings.fields)},
  CASE WHEN k.status = 'active' AND k.expires_at <= now() THEN 'expired' ELSE k.status END AS status`

export const readTenant = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, tenant: string) {
  const row = yield* Effect.flatMap(
    sql`SELECT ${tenantColumns(sql)} FROM tenants t WHERE t.name = ${tenant}`,
    tenantRows.first
  )
  return row ?? (yield* new UnknownTenant({ tenant }))
})

/** Fails when there is no such tenant. */
export const requireTenant = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  tenant: string,
  lock: "" | "FOR NO KEY UPDATE" | "FOR UPDATE" = ""
) {
  const found = yield* sql`SELECT 1 FROM tenants WHERE name = ${tenant} ${sql.literal(lock)}`
  if (found.length === 0) return yield* new UnknownTenant({ tenant })
})

/** The same, and until the end of the transaction nobody else makes keys in the tenant or changes its models. */
export const lockTenant = (sql: SqlClient.SqlClient, tenant: string) =>
  requireTenant(sql, tenant, "FOR NO KEY UPDATE")

/**
 * Runs a transaction that reads many rows: the settings of a request's short statements would plan it badly and end it after
 * two seconds. `seconds` bounds each statement. A `snapshot` writes nothing, and all its statements see the same rows.
 */
export const largeRead =
  (sql: SqlClient.SqlClient) =>
  <A, E, R>(seconds: number, read: Effect.Effect<A, E, R>, options?: { readonly snapshot: boolean }) =>
    sql.withTransaction(
      Effect.gen(function* () {
        if (options?.snapshot === true) yield* sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY`
        yield* sql`SET LOCAL statement_timeout = ${sql.literal(String(seconds * 1000))}`
        yield* sql`SET LOCAL enable_seqscan = on`
        yield* sql`SET LOCAL enable_hashjoin = on`
        return yield* read
      })
    )
