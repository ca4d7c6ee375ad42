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
    const { totals } = yield* meter.snapshot({ group: tenant, accounts: [] }, Date.now())
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
