/**
 * Intents of processes that died, which no gateway has ended. An intent counts as left when its lease ended more than a lease
 * ago: a process that lives renews it three times in a lease, and crash recovery ends it within seconds.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { makeRowReader, oneRow } from "../../infra/rows.ts"
import { endExpired } from "../../audit/statements.ts"
import { mostDifferences, mostRequests } from "./proof.ts"

const isLeft = (sql: SqlClient.SqlClient, leaseS: number) =>
  sql`lease_until < now() - make_interval(secs => ${leaseS}::float8)`

const left = makeRowReader(
  () => "intents of a key",
  Schema.Struct({
    key: Schema.String,
    tenant: Schema.NullOr(Schema.String),
    inAudit: Schema.Boolean,
    requests: Schema.Array(Schema.String),
    count: Schema.Finite
  })
)

/** By key, the keys with the oldest first. */
export const readLeftIntents = (sql: SqlClient.SqlClient, leaseS: number) =>
  left.all(sql`
      SELECT i.key_prefix AS key, t.name AS tenant, i.in_audit AS "inAudit", count(*)::float8 AS count,
        (array_agg(i.request_id::text ORDER BY i.request_id))[1:${sql.literal(String(mostRequests))}] AS requests
      FROM (SELECT request_id, key_prefix, tenant_id, EXISTS (SELECT FROM audit_log a WHERE a.request_id = intents.request_id) AS in_audit
        FROM intents WHERE ${isLeft(sql, leaseS)}) i LEFT JOIN tenants t ON t.id = i.tenant_id
      GROUP BY 1, 2, 3 ORDER BY min(i.request_id::text) LIMIT ${mostDifferences}`)

const readCount = oneRow({ running: Schema.Finite })

export const countRunning = (sql: SqlClient.SqlClient, leaseS: number) =>
  Effect.map(
    readCount(sql`SELECT count(*)::float8 AS running FROM intents WHERE NOT (${isLeft(sql, leaseS)})`),
    ({ running }) => running
  )

const ids = makeRowReader(() => "an intent", Schema.Struct({ id: Schema.String }))
const batch = 200

/**
 * Ends them as crash recovery does: with an audit row of an aborted request, and without one where the row is written. Each
 * has a transaction of its own: one that cannot be ended stays, and the next comparison names it. Returns how many it ended.
 */
export const endLeftIntents = Effect.fnUntraced(function* (pg: PgClient.PgClient, leaseS: number) {
  let [after, ended] = ["00000000-0000-0000-0000-000000000000", 0]
  for (;;) {
    const found =
      yield* ids.all(pg`SELECT request_id::text AS id FROM intents WHERE ${isLeft(pg, leaseS)} AND request_id > ${after}::text::uuid
        ORDER BY request_id LIMIT ${batch}`)
    for (const { id } of found) {
      const accounts = yield* Effect.catchTag(
        endExpired(pg, { only: id }),
        ["SqlError", "SchemaError"],
        (error) =>
          error._tag === "SqlError" && error.reason._tag === "ConnectionError"
            ? Effect.fail(error)
            : Effect.succeed([])
      )
      ended += accounts.length
      after = id
    }
    if (found.length < batch) return ended
  }
})
