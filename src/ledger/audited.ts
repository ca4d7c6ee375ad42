/**
 * Compares the ledgers, of keys and of end users, with the sums of the audit and its corrections, and mends them.
 * `audit/statements.ts` and `audit/corrections.ts` add the same to the ledgers row by row. A user whose ledger has more requests than
 * the audit is left alone: the audit has lost rows, which the ledger of the key tells, and what was spent stays spent.
 */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { type Dates, dateNumbered, numberOf } from "../domain/Calendar.ts"
import { oneRow } from "../infra/rows.ts"
import { ledgerDay } from "../audit/rows.ts"

export const nextDay = (day: string): string => dateNumbered(numberOf(day) + 1)

const Sums = Schema.Struct({ requests: Schema.Finite, tokensIn: Schema.Finite, tokensOut: Schema.Finite })
export type Sums = typeof Sums.Type

const LedgerDifference = Schema.Struct({
  keyId: Schema.String,
  tenantId: Schema.String,
  /** the account of an end user of the key, when the difference is in its ledger */
  user: Schema.NullOr(Schema.String),
  /** null: there is no such key, or tenant */
  key: Schema.NullOr(Schema.String),
  tenant: Schema.NullOr(Schema.String),
  day: Schema.String,
  audit: Sums,
  ledger: Sums
})
export type LedgerDifference = typeof LedgerDifference.Type

/**
 * A query for the entries of the audit. A correction whose audit row is lost stands for one request. A request is admitted within a
 * day of its arrival, so the ids say which months are read.
 */
const entries = (sql: SqlClient.SqlClient, { from, to }: Dates) => {
  const [start, end] = [
    sql`${`${from}T00:00:00Z`}::text::timestamptz`,
    sql`${`${to}T00:00:00Z`}::text::timestamptz`
  ]
  const day = (row: "a" | "c") => sql.literal(ledgerDay(row))
  const within = (row: "a" | "c") =>
    sql`${sql.literal(row)}.key_id IS NOT NULL AND ${sql.literal(row)}.admitted_at IS NOT NULL
      AND ${day(row)} >= ${from}::text::date AND ${day(row)} < ${to}::text::date`
  return sql`
    SELECT a.key_id, a.tenant_id, a.user_account, ${day("a")} AS day, 1 AS requests,
      a.tokens_in + coalesce(c.tokens_in, 0) AS tokens_in, a.tokens_out + coalesce(c.tokens_out, 0) AS tokens_out
    FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
    WHERE ${within("a")} AND a.request_id >= first_request_id(${start} - interval '2 days')
      AND a.request_id < first_request_id(${end} + interval '2 days')
    UNION ALL
    SELECT c.key_id, c.tenant_id, NULL, ${day("c")} AS day, 1, c.tokens_in, c.tokens_out FROM audit_corrections c
    WHERE ${within("c")} AND c.admitted_at >= ${start} - interval '2 days' AND c.admitted_at < ${end} + interval '2 days'
      AND NOT EXISTS (SELECT FROM audit_log a WHERE a.request_id = c.request_id)`
}

/** Of each ledger what its rows are about, how that is shown, and when a row `l` differs from the sums `a`. */
const ledgers = {
  ledger: {
    by: "key_id, tenant_id, day",
    shown: "NULL::uuid AS user, key_id AS key, tenant_id AS tenant",
    differs: "(a_requests, a_tokens_in, a_tokens_out) <> (l_requests, l_tokens_in, l_tokens_out)"
  },
  user_ledger: {
    by: "user_account, day",
    shown: "user_account AS user, a.key, a.tenant",
    differs:
      "l_requests < a_requests OR (l_requests = a_requests AND (a_tokens_in, a_tokens_out) <> (l_tokens_in, l_tokens_out))"
  }
} as const

const columns = ["requests", "tokens_in", "tokens_out"] as const
const sumsOf = (column: (name: string) => string): string =>
  `jsonb_build_object('requests', ${column("requests")}, 'tokensIn', ${column("tokens_in")}, 'tokensOut', ${column("tokens_out")})`
const total = (row: "a_" | "l_" | "") => (name: string) => `coalesce(sum(${row}${name}), 0)`

const readComparison = oneRow({
  /** rows that were compared, and their sums */
  compared: Schema.Finite,
  audit: Sums,
  ledger: Sums,
  /** how many differ, and the first of them */
  differing: Schema.Finite,
  differences: Schema.Array(LedgerDifference)
})

/** Compares all days of a ledger. Returns `most` differences at most. */
export const compareWithAudit = (
  sql: SqlClient.SqlClient,
  name: keyof typeof ledgers,
  days: Dates,
  most: number
) => {
  const { by, differs, shown } = ledgers[name]
  const pairs = columns.flatMap((column) =>
    (["a", "l"] as const).map((row) => `coalesce(${row}.${column}, 0) AS ${row}_${column}`)
  )
  const text = sql.literal
  return readComparison(sql`
      WITH pairs AS MATERIALIZED (
        SELECT day, ${text(shown)}, ${text(pairs.join(", "))}
        FROM (
          SELECT ${text(by)}, min(key_id::text)::uuid AS key, min(tenant_id::text)::uuid AS tenant,
            ${text(columns.map((column) => `sum(${column}) AS ${column}`).join(", "))}
          FROM (${entries(sql, days)}) entries ${text(name === "ledger" ? "" : "WHERE user_account IS NOT NULL")} GROUP BY ${text(by)}
        ) a FULL JOIN (
          SELECT * FROM ${text(name)} WHERE day >= ${days.from}::text::date AND day < ${days.to}::text::date
        ) l USING (${text(by)})
      ), differing AS MATERIALIZED (SELECT * FROM pairs WHERE ${text(differs)}),
      first AS (SELECT * FROM differing ORDER BY day, key, tenant, "user" LIMIT ${most})
      SELECT count(*)::float8 AS compared, ${text(sumsOf(total("a_")))} AS audit, ${text(sumsOf(total("l_")))} AS ledger,
        (SELECT count(*) FROM differing)::float8 AS differing,
        (SELECT coalesce(jsonb_agg(jsonb_build_object('user', "user", 'keyId', first.key, 'tenantId', first.tenant, 'key', k.prefix,
            'tenant', t.name, 'day', day, 'audit', ${text(sumsOf((column) => `a_${column}`))}, 'ledger', ${text(sumsOf((column) => `l_${column}`))})
            ORDER BY day, first.key, first.tenant, "user"), '[]')
          FROM first LEFT JOIN api_keys k ON k.id = first.key LEFT JOIN tenants t ON t.id = first.tenant) AS differences
      FROM pairs`)
}

const readKept = oneRow({ complete: Schema.NullOr(Schema.String), dropped: Schema.Finite })

/**
 * The first day of which the audit has all requests, when older months were dropped, and the ledger's days of keys before it
 * within `days`. A request of the last moment of a dropped month may have been admitted on the next day.
 */
export const readDropped = (sql: SqlClient.SqlClient, { from, to }: Dates) =>
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

/** Corrections that one repair of a key's day writes. More requests are not lost in a day without a larger accident. */
const mostCorrections = 100_000

const readEach = oneRow({ audit: Sums, ledger: Sums })

/**
 * Makes a ledger say of a day what the audit says. Requests that only the ledger of a key has get a correction each, the first with
 * their tokens, so that what was spent stays spent. Returns how many corrections it wrote.
 *
 * It locks the row of the ledger before it sums: a request that ends meanwhile adds itself to the row afterwards.
 */
export const repairFromAudit = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { day, keyId, tenantId, user }: LedgerDifference
) {
  const table = sql.literal(user === null ? "ledger" : "user_ledger")
  const [key, tenant, on] = [sql`${keyId}::text::uuid`, sql`${tenantId}::text::uuid`, sql`${day}::text::date`]
  const [column, owner] = user === null ? ["tenant_id", tenant] : ["user_account", sql`${user}::text::uuid`]
  const mine = sql`${sql.literal(column)} = ${owner} AND day = ${on} ${user === null ? sql`AND key_id = ${key}` : sql``}`
  yield* sql`INSERT INTO ${table} (key_id, day, ${sql.literal(column)}, requests, tokens_in, tokens_out)
    VALUES (${key}, ${on}, ${owner}, 0, 0, 0) ON CONFLICT DO NOTHING`
  yield* sql`SELECT 1 FROM ${table} WHERE ${mine} FOR UPDATE`
  const sums = sql.literal(sumsOf(total("")))
  const { audit, ledger } = yield* readEach(sql`
      SELECT (SELECT ${sums} FROM (${entries(sql, { from: day, to: nextDay(day) })}) entries WHERE ${mine}) AS audit,
        (SELECT ${sums} FROM ${table} WHERE ${mine}) AS ledger`)
  const lost = Math.min(mostCorrections, Math.max(0, ledger.requests - audit.requests))
  if (user !== null && lost > 0) return 0
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
  yield* sql`UPDATE ${table} SET requests = ${audit.requests + lost}::float8::bigint,
      tokens_in = ${audit.tokensIn + tokensIn}::float8::bigint, tokens_out = ${audit.tokensOut + tokensOut}::float8::bigint
    WHERE ${mine}`
  return lost
})
