/**
 * Compares the ledger of end users with the audit, and repairs it. A user whose ledger has more requests than the audit is left
 * alone: the audit has lost rows, which the ledger of the key tells, and what was spent stays spent.
 */
import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { oneRow } from "../../infra/rows.ts"
import { mostDifferences } from "./proof.ts"
import { type Days, differencesIn, type LedgerDifference, nextDay, sumsOf } from "./ledger.ts"

interface UserDays extends Days {
  readonly user?: string
}

/** A query for `user_account`, `day`, `key_id`, `tenant_id` and the sums. It reads the months of the ids, as `auditedSums` does. */
const auditedUsers = (sql: SqlClient.SqlClient, { from, to, user }: UserDays): Statement.Fragment => sql`
  SELECT a.user_account, (a.admitted_at AT TIME ZONE 'UTC')::date AS day, min(a.key_id::text)::uuid AS key_id,
    min(a.tenant_id::text)::uuid AS tenant_id, count(*) AS requests, sum(a.tokens_in + coalesce(c.tokens_in, 0)) AS tokens_in,
    sum(a.tokens_out + coalesce(c.tokens_out, 0)) AS tokens_out
  FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
  WHERE a.user_account IS NOT NULL AND a.key_id IS NOT NULL
    AND (a.admitted_at AT TIME ZONE 'UTC')::date >= ${from}::text::date AND (a.admitted_at AT TIME ZONE 'UTC')::date < ${to}::text::date
    AND a.request_id >= first_request_id(${from}::text::date - interval '2 days')
    AND a.request_id < first_request_id(${to}::text::date + interval '2 days')
    ${user === undefined ? sql`` : sql`AND a.user_account = ${user}::text::uuid`}
  GROUP BY 1, 2`

const readDifferences = oneRow(differencesIn)

/** The days of users that differ, `mostDifferences` at most. */
export const compareUsers = (sql: SqlClient.SqlClient, days: Days) =>
  Effect.flatMap(
    sql`
      WITH differing AS MATERIALIZED (
        SELECT user_account, day, a.key_id, a.tenant_id,
          a.requests AS a_requests, a.tokens_in AS a_tokens_in, a.tokens_out AS a_tokens_out,
          coalesce(l.requests, 0) AS l_requests, coalesce(l.tokens_in, 0) AS l_tokens_in, coalesce(l.tokens_out, 0) AS l_tokens_out
        FROM (${auditedUsers(sql, days)}) a LEFT JOIN user_ledger l USING (user_account, day)
        WHERE coalesce(l.requests, 0) < a.requests
          OR (l.requests = a.requests AND (l.tokens_in, l.tokens_out) <> (a.tokens_in, a.tokens_out))
      ), first AS (SELECT * FROM differing ORDER BY day, user_account LIMIT ${mostDifferences})
      SELECT (SELECT count(*) FROM differing)::float8 AS differing,
        coalesce(jsonb_agg(jsonb_build_object('keyId', key_id, 'tenantId', first.tenant_id, 'key', k.prefix, 'tenant', t.name,
          'user', user_account, 'day', day, 'audit', ${sumsOf(sql, "a", "each")}, 'ledger', ${sumsOf(sql, "l", "each")})
          ORDER BY day, user_account), '[]') AS differences
      FROM first LEFT JOIN api_keys k ON k.id = key_id LEFT JOIN tenants t ON t.id = first.tenant_id`,
    readDifferences
  )

/** Makes the ledger of a user and day say what the audit says. It locks the row first, as `repairLedger` does. */
export const repairUser = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { day, keyId }: Pick<LedgerDifference, "day" | "keyId">,
  user: string
) {
  yield* sql`INSERT INTO user_ledger (user_account, day, key_id, requests, tokens_in, tokens_out)
    VALUES (${user}::text::uuid, ${day}::text::date, ${keyId}::text::uuid, 0, 0, 0) ON CONFLICT (user_account, day) DO NOTHING`
  yield* sql`SELECT 1 FROM user_ledger WHERE user_account = ${user}::text::uuid AND day = ${day}::text::date FOR UPDATE`
  yield* sql`UPDATE user_ledger l SET requests = a.requests, tokens_in = a.tokens_in, tokens_out = a.tokens_out
    FROM (${auditedUsers(sql, { from: day, to: nextDay(day), user })}) a
    WHERE l.user_account = a.user_account AND l.day = a.day`
})
