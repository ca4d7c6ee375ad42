/** Reads keys with all that decides whether they work now, and says when a new key ends. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import { makeRowReader } from "../infra/rows.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { readTotals } from "../ledger/totals.ts"
import { now, statesOf } from "./budgets.ts"
import { mustBe, NoSuchName } from "./Errors.ts"
import {
  budgetFields,
  keyColumns,
  KeyOverview,
  keyStatus,
  type KeyStatus,
  nameOfKey,
  type NewKey
} from "./rows.ts"
import { type Deadline, deadlineOf, readNow } from "./period.ts"
import * as Values from "./Values.ts"

/** A disabled key is live, because it may be enabled again. */
const live = "k.status <> 'revoked' AND (k.expires_at IS NULL OR k.expires_at > now())"

const named = makeRowReader(nameOfKey, Schema.Struct({ name: Schema.String, prefix: Schema.String }))

/** Those of the names that live keys of the tenant have, each with one of these keys. */
export const liveNames = (sql: SqlClient.SqlClient, tenant: string, names: ReadonlyArray<string>) =>
  named.all(sql`SELECT DISTINCT ON (k.name) k.name, k.prefix FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE t.name = ${tenant} AND k.name IN (SELECT jsonb_array_elements_text(${JSON.stringify(names)}::jsonb))
        AND ${sql.literal(live)} ORDER BY k.name, k.created_at`)

const labelled = makeRowReader(
  nameOfKey,
  Schema.Struct({ name: Schema.String, prefix: Schema.String, account: Schema.String })
)

/** The names and accounts of keys by prefix. `which`: a condition on `k` */
export const namesOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  prefixes: ReadonlyArray<string>,
  which = "true"
) {
  const found =
    yield* labelled.all(sql`SELECT k.name, k.prefix, ${accountOf(sql, "k")}::text AS account FROM api_keys k
      WHERE k.prefix IN (SELECT jsonb_array_elements_text(${JSON.stringify(prefixes)}::jsonb)) AND ${sql.literal(which)}`)
  return new Map(found.map((key) => [key.prefix, key]))
})

export const livePrefixes = (sql: SqlClient.SqlClient, prefixes: ReadonlyArray<string>) =>
  Effect.map(namesOf(sql, prefixes, live), (names): ReadonlySet<string> => new Set(names.keys()))

/** What `list-keys` may ask for. */
export interface KeyFilter {
  /** a part of the name */
  readonly name?: string | undefined
  readonly status?: KeyStatus | undefined
  /** those that end within this time */
  readonly expiringMs?: number | undefined
}

const contains = (sql: SqlClient.SqlClient, name: string) =>
  sql`position(lower(${name}) IN lower(k.name)) > 0`

export const keysOf = (sql: SqlClient.SqlClient, { expiringMs, name, status }: KeyFilter) =>
  sql.and([
    sql`true`,
    ...(name === undefined ? [] : [contains(sql, name)]),
    ...(status === undefined ? [] : [sql`${sql.literal(keyStatus)} = ${status}`]),
    ...(expiringMs === undefined
      ? []
      : [
          sql`${sql.literal(live)} AND k.expires_at <= now() + ${expiringMs}::float8 * interval '1 millisecond'`
        ])
  ])

const Candidates = makeRowReader(
  nameOfKey,
  Schema.Struct({
    name: Schema.String,
    prefix: Schema.String,
    tenant: Schema.String,
    live: Schema.Boolean,
    same: Schema.Boolean
  })
)

/** The prefix of the only key of this name: of its live key, where it has several. */
export const prefixOfName = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, name: string) {
  const found = yield* Candidates.all(sql`SELECT k.name, k.prefix, t.name AS tenant, k.name = ${name} AS same,
      (${sql.literal(live)}) AS live FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE ${contains(sql, name)} ORDER BY same DESC, live DESC, t.name, k.name, k.created_at LIMIT 20`)
  const same = found.filter((key) => key.same)
  const living = same.filter((key) => key.live)
  const meant = living.length > 0 ? living : same
  const [only, ...others] = meant
  if (only !== undefined && others.length === 0) return only.prefix
  return yield* new NoSuchName({ name, candidates: only === undefined ? found : meant })
})

/** `account`: whose budgets it uses; `at`: now */
const Row = Schema.Struct({ ...KeyOverview.fields, account: Schema.String, at: Schema.Finite })
const rows = makeRowReader(nameOfKey, Row)

/** The keys that `where` selects, with what the ledger counts of those that have a budget. */
export const readKeys = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  where: Statement.Fragment,
  { dayAt }: Calendar
) {
  const found = yield* rows.all(sql`
      SELECT ${keyColumns(sql)}, ${accountOf(sql, "k")}::text AS account, ${sql.literal(now)},
        json_build_object('rpm', coalesce(k.rpm, t.rpm), 'tpm', coalesce(k.tpm, t.tpm),
          'concurrent', coalesce(k.concurrent, t.concurrent)) AS effective,
        t.disabled AS "tenantDisabled",
        NOT t.allow_all_models AND cardinality(t.allowed_models) = 0 AS "tenantWithoutModels",
        (SELECT max(a.arrived_at) FROM audit_log a WHERE a.key_prefix = k.prefix) AS "lastUsed"
      FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE ${where} ORDER BY t.name, k.name, k.created_at, k.prefix`)
  const owners = found.flatMap((key) =>
    budgetFields.every((field) => key[field] === null) ? [] : [{ group: "", key: key.account }]
  )
  const totals = yield* readTotals(sql, owners, dayAt(found[0]?.at ?? 0))
  return found.map((key): KeyOverview => {
    const states = statesOf(key, totals.get(key.account))
    return { ...Struct.omit(key, ["account", "at"]), budgets: states.filter(({ budget }) => budget !== null) }
  })
})

/** Year 10000. Later dates have another text format. */
const lastInstantMs = 253_402_300_800_000

/** The end that an operator means. */
export const readDeadline = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  field: string,
  given: Deadline,
  calendar: Calendar
) {
  const now = yield* readNow(sql)
  const at = deadlineOf(now, given, calendar)
  const isFuture = at > now && at < lastInstantMs
  return isFuture ? new Date(at) : yield* mustBe(field, "a time in the future, before the year 10000")
})

/** Returns a fragment of SQL: a timestamptz or null. */
export const expiryOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { expiresAt, expiresInMs }: Pick<NewKey, "expiresAt" | "expiresInMs">,
  calendar: Calendar
) {
  if (expiresInMs !== undefined && expiresAt !== undefined) {
    return yield* mustBe("expires-at", "left out when --expires-in is given")
  }
  if (expiresInMs !== undefined) {
    const lifetime = yield* Values.validate("expires-in", Values.lifetimeMs, expiresInMs)
    return sql`now() + ${lifetime}::float8 * interval '1 millisecond'`
  }
  if (expiresAt === undefined) return sql`NULL::timestamptz`
  return sql`${(yield* readDeadline(sql, "expires-at", expiresAt, calendar)).toISOString()}::timestamptz`
})
