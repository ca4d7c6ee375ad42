/** Gives tenants other names and keys other tenants, and deletes tenants that were never used. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { accountOf } from "../gates/keys/accounts.ts"
import { oneRow } from "../infra/rows.ts"
import { DuplicateKey, DuplicateTenant, TenantInUse, UnknownKey, withRegistryDown } from "./Errors.ts"
import { liveNames } from "./keys.ts"
import { keyColumns, keyRows, lockAccount, lockTenant, readTenant, requireTenant } from "./rows.ts"
import * as Values from "./Values.ts"

const countOf = oneRow({ keys: Schema.Finite, used: Schema.Boolean })

export const makeMoves = (sql: SqlClient.SqlClient) => {
  const renameTenant = Effect.fnUntraced(
    function* (tenant: string, given: string) {
      const name = yield* Values.validate("name", Values.name, given)
      yield* lockTenant(sql, tenant)
      const taken = yield* sql`SELECT 1 FROM tenants WHERE name = ${name} AND name <> ${tenant}`
      if (taken.length > 0) return yield* new DuplicateTenant({ tenant: name })
      yield* sql`UPDATE tenants SET name = ${name} WHERE name = ${tenant}`
      return yield* readTenant(sql, name)
    },
    sql.withTransaction,
    withRegistryDown
  )

  /**
   * Only a tenant that has no key and never used anything: reports need the names of the others. A key that has another tenant by
   * now may still have a request of this one under way.
   */
  const deleteTenant = Effect.fnUntraced(
    function* (tenant: string) {
      yield* requireTenant(sql, tenant, "FOR UPDATE")
      const { keys, used } =
        yield* countOf(sql`SELECT (SELECT count(*) FROM api_keys k WHERE k.tenant_id = t.id)::float8 AS keys,
            EXISTS (SELECT FROM ledger l WHERE l.tenant_id = t.id)
              OR EXISTS (SELECT FROM intents i WHERE i.tenant_id = t.id) AS used
          FROM tenants t WHERE t.name = ${tenant}`)
      if (keys > 0 || used) return yield* new TenantInUse({ tenant, keys })
      yield* sql`DELETE FROM tenants WHERE name = ${tenant}`
    },
    sql.withTransaction,
    withRegistryDown
  )

  /**
   * Gives the key and those that share its account to another tenant. What they used stays with the old tenant; their
   * budgets go on with what was spent. Returns all keys that moved.
   */
  const moveKey = Effect.fnUntraced(
    function* (prefix: string, tenant: string) {
      if (!(yield* lockAccount(sql, prefix))) return yield* new UnknownKey({ prefix })
      yield* lockTenant(sql, tenant)
      const moving = sql`${accountOf(sql, "k")} = (SELECT ${accountOf(sql, "o")} FROM api_keys o WHERE o.prefix = ${prefix})`
      const keys = yield* keyRows.all(
        sql`SELECT ${keyColumns(sql)} FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE ${moving} ORDER BY k.created_at`
      )
      const arriving = keys.filter((key) => key.tenant !== tenant)
      const names = arriving.filter(({ status }) => status === "active" || status === "disabled")
      const [same] = yield* liveNames(
        sql,
        tenant,
        names.map(({ name }) => name)
      )
      if (same !== undefined) return yield* new DuplicateKey({ label: same.name, prefix: same.prefix })
      yield* sql`UPDATE api_keys k SET tenant_id = (SELECT id FROM tenants WHERE name = ${tenant}) WHERE ${moving}`
      return arriving.map((key) => ({ ...key, tenant }))
    },
    sql.withTransaction,
    withRegistryDown
  )

  return { renameTenant, deleteTenant, moveKey }
}
