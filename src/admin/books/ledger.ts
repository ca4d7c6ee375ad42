/**
 * Compares the ledger, of keys and of end users, with the audit, and repairs it. A user whose ledger has more requests than
 * the audit is left alone: the audit has lost rows, which the ledger of the key tells, and what was spent stays spent.
 */
import { Effect, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { dayMs, dayOf } from "../../domain/Calendar.ts"
import { auditedSums } from "../../ledger/audited.ts"
import { oneRow } from "../../infra/rows.ts"
import { mostDifferences } from "./proof.ts"

const Sums = Schema.Struct({ requests: Schema.Finite, tokensIn: Schema.Finite, tokensOut: Schema.Finite })

const LedgerDifference = Schema.Struct({
  keyId: Schema.String,
  tenantId: Schema.String,
  /** the account of an end user of the key, when the difference is in its ledger */
  user: Schema.optionalKey(Schema.String),
  /** null: there is no such key, or tenant */
  key: Schema.NullOr(Schema.String),
  tenant: Schema.NullOr(Schema.String),
  day: Schema.String,
  audit: Sums,
  ledger: Sums
})
export type LedgerDifference = typeof LedgerDifference.Type

const readKept = oneRow({ complete: Schema.NullOr(Schema.String), dropped: Schema.Finite })
/** How many differ, and the first of them. */
const differencesIn = {
  differing: Schema.Finite,
  differences: Schema.Array(LedgerDifference)
}
const readSums = oneRow({ keysAndDays: Schema.Finite, audit: Sums, ledger: Sums, ...differencesIn })

const sumsOf = (sql: SqlClient.SqlClient, alias: "a" | "l", of: "each" | "all") => {
  const column = (name: string) => (of === "each" ? `${alias}_${name}` : `coalesce(sum(${alias}_${name}), 0)`)
  return sql.literal(
    `jsonb_build_object('requests', ${column("requests")}, 'tokensIn', ${column("tokens_in")}, 'tokensOut', ${column("tokens_out")})`
  )
}

/** `to` is not included. */
export interface Days {
  readonly from: string
  readonly to: string
}

/**
 * The first UTC day of which the audit has all requests, when older months were dropped, and the ledger's days of keys before it
 * within `days`. A request of the last moment of a dropped month may have been admitted on the next day.
 */
export const readDropped = (sql: SqlClient.SqlClient, { from, to }: Days) =>
  readKept(sql`
      WITH kept AS (
        SELECT date_trunc('month', least(
          (SELECT min(request_id_time(from_id)) FROM audit_partitions WHERE from_id IS NOT NULL),
          (SELECT request_id_time(request_id) FROM audit_log ORDER BY request_id LIMIT 1)
        ) AT TIME ZONE 'UTC')::date AS first
      )
      SELECT (SELECT first + 1 FROM kept WHERE EXISTS (SELECT FROM ledger WHERE day < first))::text AS complete,
        (SELECT count(*) FROM kept JOIN ledger ON day <= first
          WHERE day >= ${from}::text::date AND day < ${to}::text::date AND EXISTS (SELECT FROM ledger l WHERE l.day < first))::float8
          AS dropped`)

/** Sums of all days of keys, and those that differ, `mostDifferences` at most. */
export const compareLedger = (sql: SqlClient.SqlClient, { from, to }: Days) =>
  readSums(sql`
      WITH pairs AS MATERIALIZED (
        SELECT key_id, tenant_id, day,
          coalesce(a.requests, 0) AS a_requests, coalesce(a.tokens_in, 0) AS a_tokens_in, coalesce(a.tokens_out, 0) AS a_tokens_out,
          coalesce(l.requests, 0) AS l_requests, coalesce(l.tokens_in, 0) AS l_tokens_in, coalesce(l.tokens_out, 0) AS l_tokens_out
        FROM (${auditedSums(sql, { from, to })}) a
        FULL JOIN (SELECT * FROM ledger WHERE day >= ${from}::text::date AND day < ${to}::text::date) l
          USING (key_id, tenant_id, day)
      ), differing AS MATERIALIZED (
        SELECT * FROM pairs WHERE (a_requests, a_tokens_in, a_tokens_out) <> (l_requests, l_tokens_in, l_tokens_out)
      ), first AS (SELECT * FROM differing ORDER BY day, key_id, tenant_id LIMIT ${mostDifferences})
      SELECT count(*)::float8 AS "keysAndDays", (SELECT count(*) FROM differing)::float8 AS differing,
        ${sumsOf(sql, "a", "all")} AS audit, ${sumsOf(sql, "l", "all")} AS ledger,
        (SELECT coalesce(jsonb_agg(jsonb_build_object('keyId', key_id, 'tenantId', first.tenant_id, 'key', k.prefix, 'tenant', t.name,
            'day', day, 'audit', ${sumsOf(sql, "a", "each")}, 'ledger', ${sumsOf(sql, "l", "each")})
            ORDER BY day, key_id, first.tenant_id), '[]')
          FROM first LEFT JOIN api_keys k ON k.id = key_id LEFT JOIN tenants t ON t.id = first.tenant_id) AS differences
      FROM pairs`)

/** Corrections that one repair of a key's day writes. More requests are not lost in a day without a larger accident. */
const mostCorrections = 100_000

const readEach = oneRow({ audit: Sums, ledger: Sums })

export const nextDay = (day: string): string => dayOf(Date.parse(day) + dayMs)

/**
 * Makes the ledger of a key and day say what the audit says. Requests that only the ledger has get a correction each, the
 * first with their tokens, so that what was spent stays spent. Returns how many corrections it wrote.
 *
 * It locks the row of the ledger before it sums: a request that ends meanwhile adds itself to the row afterwards.
 */
export const repairLedger = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { day, keyId, tenantId }: Pick<LedgerDifference, "day" | "keyId" | "tenantId">
) {
  const [key, tenant, on] = [sql`${keyId}::text::uuid`, sql`${tenantId}::text::uuid`, sql`${day}::text::date`]
  const mine = sql`key_id = ${key} AND tenant_id = ${tenant} AND day = ${on}`
  yield* sql`INSERT INTO ledger (key_id, day, tenant_id, requests, tokens_in, tokens_out)
    VALUES (${key}, ${on}, ${tenant}, 0, 0, 0) ON CONFLICT (key_id, day, tenant_id) DO NOTHING`
  yield* sql`SELECT 1 FROM ledger WHERE ${mine} FOR UPDATE`
  const audited = auditedSums(sql, { from: day, to: nextDay(day), key: { keyId, tenantId } })
  const { audit, ledger } = yield* readEach(sql`
      SELECT jsonb_build_object('requests', coalesce(a.requests, 0), 'tokensIn', coalesce(a.tokens_in, 0),
          'tokensOut', coalesce(a.tokens_out, 0)) AS audit,
        jsonb_build_object('requests', l.requests, 'tokensIn', l.tokens_in, 'tokensOut', l.tokens_out) AS ledger
      FROM (SELECT * FROM ledger WHERE ${mine}) l LEFT JOIN (${audited}) a USING (key_id, tenant_id, day)`)
  const lost = Math.min(mostCorrections, Math.max(0, ledger.requests - audit.requests))
  const tokensIn = lost === 0 ? 0 : Math.max(0, ledger.tokensIn - audit.tokensIn)
  const tokensOut = lost === 0 ? 0 : Math.max(0, ledger.tokensOut - audit.tokensOut)
  if (lost > 0)
    yield* sql`
      INSERT INTO audit_corrections (request_id, tenant_id, key_id, key_prefix, admitted_at, tokens_in, tokens_out, status,
        error_type)
      SELECT (left(first_request_id(start)::text, 14) || '7000-8000' || right(gen_random_uuid()::text, 13))::uuid,
        ${tenant}, ${key}, (SELECT prefix FROM api_keys WHERE id = ${key}), start,
        CASE WHEN n = 1 THEN ${tokensIn}::float8::bigint ELSE 0 END, CASE WHEN n = 1 THEN ${tokensOut}::float8::bigint ELSE 0 END,
        500, 'audit_row_lost'
      FROM generate_series(1, ${lost}::int) n, LATERAL (SELECT ${on}::timestamp AT TIME ZONE 'UTC' AS start) d`
  yield* sql`UPDATE ledger SET requests = ${audit.requests + lost}::float8::bigint,
      tokens_in = ${audit.tokensIn + tokensIn}::float8::bigint, tokens_out = ${audit.tokensOut + tokensOut}::float8::bigint
    WHERE ${mine}`
  return lost
})

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
  readDifferences(sql`
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
      FROM first LEFT JOIN api_keys k ON k.id = key_id LEFT JOIN tenants t ON t.id = first.tenant_id`)

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
