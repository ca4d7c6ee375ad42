/**
 * Intents of processes that died, which no gateway has ended. An intent counts as left when its lease ended more than a lease
 * ago: a process that lives renews it three times in a lease, and crash recovery ends it within seconds.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { isExpired } from "../../audit/statements.ts"
import { oneRow } from "../../infra/rows.ts"
import { endEach, readExpired } from "../../ledger/deadRequests.ts"
import { mostDifferences, mostRequests } from "./proof.ts"

const readBoth = oneRow({
  running: Schema.Finite,
  left: Schema.Array(
    Schema.Struct({
      key: Schema.String,
      tenant: Schema.NullOr(Schema.String),
      inAudit: Schema.Boolean,
      requests: Schema.Array(Schema.String),
      count: Schema.Finite
    })
  )
})

/** Those that are left by key, the keys with the oldest first, and how many others there are. */
export const readIntents = (pg: PgClient.PgClient, leaseS: number) =>
  readBoth(pg`
      WITH judged AS (SELECT *, ${isExpired(pg, leaseS)} AS is_left FROM intents),
      left_by_key AS (
        SELECT i.key_prefix AS key, t.name AS tenant, EXISTS (SELECT FROM audit_log a WHERE a.request_id = i.request_id) AS in_audit,
          count(*) AS count, array_agg(i.request_id::text ORDER BY i.request_id) AS requests
        FROM judged i LEFT JOIN tenants t ON t.id = i.tenant_id WHERE is_left
        GROUP BY 1, 2, 3 ORDER BY min(i.request_id::text) LIMIT ${mostDifferences}
      )
      SELECT (SELECT count(*) FROM judged WHERE NOT is_left)::float8 AS running, coalesce(jsonb_agg(jsonb_build_object('key', key,
          'tenant', tenant, 'inAudit', in_audit, 'count', count, 'requests', requests[1:${pg.literal(String(mostRequests))}])
          ORDER BY requests[1]), '[]') AS "left"
      FROM left_by_key`)

/**
 * Ends them as crash recovery does: with an audit row of an aborted request, and without one where the row is written. One that
 * cannot be ended stays, and the next comparison names it. Returns how many it ended.
 */
export const endLeftIntents = Effect.fnUntraced(function* (pg: PgClient.PgClient, leaseS: number) {
  const tried: Array<string> = []
  for (let sum = 0; ;) {
    const ids = yield* readExpired(pg, tried, leaseS)
    if (ids.length === 0) return sum
    sum += (yield* endEach(pg, ids, () => Effect.void)).ended
    tried.push(...ids)
  }
})
