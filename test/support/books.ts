/** Whether the books agree: audit, ledger and live counters of every key and tenant, and whether anybody got more than a limit. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { Meter } from "../../src/gates/meter/Meter.ts"

const Row = Schema.Struct({
  account: Schema.String,
  tenant_id: Schema.String,
  audit: Schema.Finite,
  ledger: Schema.Finite,
  intents: Schema.Finite
})
const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Row))

const decodeUsers = Schema.decodeUnknownEffect(
  Schema.Array(
    Schema.Struct({
      group: Schema.String,
      key: Schema.String,
      user: Schema.String,
      audit: Schema.Finite,
      ledger: Schema.Finite
    })
  )
)

/** Tokens by which audit, ledger and live counters of end users differ. */
const usersDiffer = Effect.gen(function* () {
  const [pg, meter] = [yield* PgClient.PgClient, yield* Meter]
  const rows = yield* decodeUsers(
    yield* pg`
      WITH a AS (
        SELECT a.user_account, min(a.key_id::text)::uuid AS key_id,
          sum(a.tokens_in + a.tokens_out + coalesce(c.tokens_in + c.tokens_out, 0)) AS n
        FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
        WHERE a.user_account IS NOT NULL AND a.admitted_at IS NOT NULL GROUP BY 1
      ), l AS (SELECT user_account, min(key_id::text)::uuid AS key_id, sum(tokens_in + tokens_out) AS n FROM user_ledger GROUP BY 1)
      SELECT user_account::text AS user, coalesce(k.budget_account, k.id)::text AS key, k.tenant_id::text AS group,
        coalesce(a.n, 0)::float8 AS audit, coalesce(l.n, 0)::float8 AS ledger
      FROM a FULL JOIN l USING (user_account) JOIN api_keys k ON k.id = coalesce(a.key_id, l.key_id)`
  )
  const differences = yield* Effect.forEach(rows, ({ audit, group, key, ledger, user }) =>
    Effect.map(
      meter.snapshot({ group, key, user }, Date.now()),
      ({ lapsed, open, totals }) =>
        Math.abs(audit - ledger) + Math.abs((totals.total ?? ledger) - ledger) + open + lapsed.length
    )
  )
  return differences.reduce((sum, difference) => sum + difference, 0)
})

export interface Books {
  readonly audit: number
  readonly ledger: number
  readonly counters: number
  /** tokens by which the three differ, over all keys */
  readonly difference: number
  /** requests that have a slot */
  readonly leases: number
  /** requests whose lease has ended and that still hold tokens */
  readonly lapsed: number
  /** all of them, and open intents */
  readonly open: number
}

export const books: Effect.Effect<Books, never, PgClient.PgClient | Meter> = Effect.gen(function* () {
  const [pg, meter] = [yield* PgClient.PgClient, yield* Meter]
  const rows = yield* decodeRows(
    yield* pg`
      SELECT coalesce(k.budget_account, k.id)::text AS account, k.tenant_id::text,
        (sum((SELECT coalesce(sum(tokens_in + tokens_out), 0) FROM audit_log a WHERE a.key_id = k.id))
          + sum((SELECT coalesce(sum(tokens_in + tokens_out), 0) FROM audit_corrections c WHERE c.key_id = k.id)))::float8
          AS audit,
        sum((SELECT coalesce(sum(tokens_in + tokens_out), 0) FROM ledger l WHERE l.key_id = k.id))::float8 AS ledger,
        sum((SELECT count(*) FROM intents i WHERE i.key_id = k.id))::float8 AS intents
      FROM api_keys k GROUP BY 1, 2`
  )
  let [audit, ledger, counters, difference, leases, lapsed, intents] = [0, 0, 0, 0, 0, 0, 0]
  /** what the keys of each tenant have spent */
  const tenants = new Map<string, number>()
  const surveys = yield* Effect.forEach(
    rows,
    (row) =>
      Effect.map(meter.snapshot({ group: row.tenant_id, key: row.account }, Date.now()), (survey) => ({
        row,
        survey
      })),
    { concurrency: 16 }
  )
  for (const { row, survey } of surveys) {
    tenants.set(row.tenant_id, (tenants.get(row.tenant_id) ?? 0) + row.ledger)
    // A key that nobody used has no counter.
    const counted = survey.totals.total ?? row.ledger
    audit += row.audit
    ledger += row.ledger
    counters += counted
    difference += Math.abs(counted - row.ledger)
    leases += survey.open
    lapsed += survey.lapsed.length
    intents += row.intents
  }
  // Only tenants with a budget have a counter.
  for (const [tenant, spent] of tenants) {
    const { totals } = yield* meter.snapshotGroup(tenant, [], Date.now())
    difference += Math.abs((totals.total ?? spent) - spent)
  }
  const unaudited = Math.abs(audit - ledger)
  difference += yield* usersDiffer
  const open = leases + lapsed + intents
  return { audit, ledger, counters, difference: difference + unaudited, leases, lapsed, open }
}).pipe(Effect.orDie)

/** Waits until nothing is open and all agree, `seconds` at most; the last state either way, and how long it took. */
export const settledBooks = Effect.fnUntraced(function* (seconds: number) {
  const began = performance.now()
  let state = yield* books
  while ((state.open > 0 || state.difference > 0) && performance.now() - began < seconds * 1000) {
    yield* Effect.sleep("200 millis")
    state = yield* books
  }
  return { ...state, seconds: (performance.now() - began) / 1000 }
})

const Count = Schema.Tuple([Schema.Struct({ n: Schema.Finite })])
const decodeCount = Schema.decodeUnknownEffect(Count)

/** The most requests of a key that were admitted in any 60 seconds, by the store's own times. */
export const busiestMinute = (prefix: string) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`
      SELECT coalesce(max(n), 0)::float8 AS n FROM (
        SELECT count(*) OVER (PARTITION BY key_id ORDER BY admitted_at RANGE BETWEEN CURRENT ROW
          AND interval '59.999 seconds' FOLLOWING) AS n
        FROM admissions JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}) AS spans`
  ).pipe(
    Effect.flatMap(decodeCount),
    Effect.map(([{ n }]) => n),
    Effect.orDie
  )

/** Rate refusals before which, in the longest time a window can reach back, the key had not had its rpm. */
export const wronglyRefused = (prefix: string, rpm: number) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`
      SELECT count(*)::float8 AS n FROM audit_log a
      WHERE a.key_prefix = ${prefix} AND a.error_type = 'rate_limit_exceeded' AND (
        SELECT count(*) FROM admissions d WHERE d.key_id = a.key_id
          AND d.admitted_at > a.arrived_at - interval '60.6 seconds' AND d.admitted_at <= a.completed_at) < ${rpm}`
  ).pipe(
    Effect.flatMap(decodeCount),
    Effect.map(([{ n }]) => n),
    Effect.orDie
  )

/** Requests the model server got that have no audit row, of all that it got. */
export const unaudited = (seen: ReadonlySet<number>) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`SELECT DISTINCT client_request_id AS id FROM audit_log WHERE client_request_id IS NOT NULL`
  ).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))),
    Effect.map((rows) => {
      const audited = new Set(rows.map(({ id }) => Number(id)))
      return [...seen].filter((number) => !audited.has(number)).length
    }),
    Effect.orDie
  )

/** A correction of an audit row. */
export interface Correction {
  /** epoch ms, by the clock of the database */
  readonly at: number
  /** `taken`: another process had closed the request as aborted; `late`: the client had a 503 because the row was late */
  readonly why: "taken" | "late"
}

const decodeCorrections = Schema.decodeUnknownEffect(
  Schema.Array(Schema.Struct({ at: Schema.Finite, why: Schema.Literals(["taken", "late"]) }))
)

/** All corrections. An audit row is corrected at most once, for one of two reasons (`src/audit/corrections.ts`). */
export const allCorrections: Effect.Effect<
  ReadonlyArray<Correction>,
  never,
  PgClient.PgClient
> = Effect.flatMap(
  PgClient.PgClient,
  (pg) => pg`
      SELECT (extract(epoch FROM c.corrected_at) * 1000)::float8 AS at,
        CASE WHEN a.error_type = 'aborted' THEN 'taken' WHEN c.status = 503 THEN 'late' END AS why
      FROM audit_corrections c LEFT JOIN audit_log a USING (request_id) ORDER BY 1`
).pipe(Effect.flatMap(decodeCorrections), Effect.orDie)

/** Tokens the ledger has for a key. */
export const spentOf = (prefix: string) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n
      FROM ledger JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}`
  ).pipe(
    Effect.flatMap(decodeCount),
    Effect.map(([{ n }]) => n),
    Effect.orDie
  )

/** The most tokens of a key in any 60 seconds. Only for short requests: their tokens are taken for used when admitted. */
export const tokensInMinute = (prefix: string) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`
      SELECT coalesce(max(n), 0)::float8 AS n FROM (
        SELECT sum(a.tokens_in + a.tokens_out) OVER (PARTITION BY d.key_id ORDER BY d.admitted_at RANGE BETWEEN
          CURRENT ROW AND interval '59.9 seconds' FOLLOWING) AS n
        FROM admissions d JOIN audit_log a USING (request_id) WHERE a.key_prefix = ${prefix}) AS spans`
  ).pipe(
    Effect.flatMap(decodeCount),
    Effect.map(([{ n }]) => n),
    Effect.orDie
  )
