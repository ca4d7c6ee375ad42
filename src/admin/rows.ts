/** Reads rows of tenants and keys. */
import { Schema, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import { selected } from "../infra/columns.ts"
import { KeySettings, TenantSettings } from "../domain/settings.ts"
import { budgetFields, KeyInfo, TenantInfo } from "./Registry.ts"

export const rowsOf = <A>(row: Schema.Decoder<A>) => Schema.decodeUnknownEffect(Schema.Array(row))

export const tenantRows = rowsOf(TenantInfo)
export const keyRows = rowsOf(KeyInfo)

/** The columns of `TenantInfo`, of a row `t` of `tenants`. */
export const tenantColumns = (sql: SqlClient.SqlClient) => sql`
  t.name, ${selected(sql, "t", Struct.omit(TenantSettings.fields, budgetFields))},
  CASE WHEN t.disabled THEN 'disabled' ELSE 'active' END AS status, t.created_at AS created`

/** The columns of `KeyInfo`, of a row `k` of `api_keys` and a row `t` of `tenants`. */
export const keyColumns = (sql: SqlClient.SqlClient) => sql`
  k.prefix, k.name, t.name AS tenant, k.scopes, k.created_at AS created, k.expires_at AS expires,
  ${selected(sql, "k", Struct.omit(KeySettings.fields, budgetFields))},
  CASE WHEN k.status = 'active' AND k.expires_at <= now() THEN 'expired' ELSE k.status END AS status`
