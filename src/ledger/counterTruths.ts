/** What live counters at rest must be, by the ledger, and by how many tokens they differ. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Effect, Schema } from "effect"
import { type Period, periods } from "../domain/Limits.ts"
import type { Account } from "../domain/Reservation.ts"
import { accountOf, keysOfTenant } from "../gates/keys/accounts.ts"
import type { Snapshot } from "../gates/meter/Meter.ts"
import { timeoutDetached } from "../infra/time.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

/** A tenant with more accounts is not compared: Redis reads all of them in one script. */
export const mostAccounts = 2000

const sums = { open: Schema.Finite, day: Schema.Finite, month: Schema.Finite, total: Schema.Finite }
const Truth = Schema.Struct({ account: Schema.String, ...sums })
type Truth = typeof Truth.Type
const decodeTruths = Schema.decodeUnknownEffect(Schema.Array(Truth))
const decodeTenantTruth = Schema.decodeUnknownEffect(Schema.Tuple([Schema.Struct(sums)]))
const decodeAccounts = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ account: Schema.String })))

/** Accounts per statement. It sums all days of a key: for 1,000 keys with three years each that took 4 s. */
const atOnce = 100

/** The first and last day of the month are computed once: computing the month of each row costs more than adding it. */
const truthsOf = (pg: PgClient.PgClient, accounts: ReadonlyArray<string>, instant: string) =>
  timeoutDetached("3 seconds")(pg`
    WITH a AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(accounts)}))::uuid[]) AS id),
      k AS (SELECT id AS account, id AS key_id FROM a
        UNION SELECT a.id, o.id FROM a JOIN api_keys o ON o.budget_account = a.id),
      at AS MATERIALIZED (${daysOf(pg, pg`${instant}::text::timestamptz`)})
    SELECT k.account::text,
      (SELECT count(*) FROM intents i WHERE i.key_id IN (SELECT o.key_id FROM k o WHERE o.account = k.account))::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM k CROSS JOIN at LEFT JOIN ledger l ON l.key_id = k.key_id
    GROUP BY k.account`).pipe(Effect.flatMap(decodeTruths))

/** The same of users. */
const userTruthsOf = (pg: PgClient.PgClient, users: ReadonlyArray<string>, instant: string) =>
  timeoutDetached("3 seconds")(pg`
    WITH u AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(users)}))::uuid[]) AS id),
      at AS MATERIALIZED (${daysOf(pg, pg`${instant}::text::timestamptz`)})
    SELECT u.id::text AS account, (SELECT count(*) FROM intents i WHERE i.user_account = u.id)::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM u CROSS JOIN at LEFT JOIN user_ledger l ON l.user_account = u.id
    GROUP BY u.id`).pipe(Effect.flatMap(decodeTruths))

/** The ledger's totals of each account, and the number of its open intents, by the id of its key or user. */
export const readLedgerTotals = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  accounts: ReadonlyArray<Account>,
  at: number
) {
  const keys = accounts.flatMap(({ key, user }) => (user === undefined ? [key] : []))
  const users = accounts.flatMap(({ user }) => user ?? [])
  const instant = new Date(at).toISOString()
  const truths = [
    ...(yield* Effect.forEach(Arr.chunksOf(keys, atOnce), (some) => truthsOf(pg, some, instant))),
    ...(yield* Effect.forEach(Arr.chunksOf(users, atOnce), (some) => userTruthsOf(pg, some, instant)))
  ]
  return new Map(truths.flat().map((truth) => [truth.account, truth]))
})

/** The same of a tenant. */
export const readTenantTotals = (pg: PgClient.PgClient, tenant: string, at: number) =>
  timeoutDetached("3 seconds")(pg`
    WITH at AS MATERIALIZED (${daysOf(pg, pg`${new Date(at).toISOString()}::text::timestamptz`)})
    SELECT (SELECT count(*) FROM intents WHERE key_id IN (${keysOfTenant(pg, tenant)}))::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM at LEFT JOIN ledger l ON l.tenant_id = ${tenant}::text::uuid`).pipe(
    Effect.flatMap(decodeTenantTruth),
    Effect.map(([totals]) => totals)
  )

/** The accounts of a tenant, one more than `mostAccounts` at most. */
export const readAccounts = (pg: PgClient.PgClient, tenant: string) =>
  timeoutDetached("3 seconds")(pg`
    SELECT DISTINCT ${accountOf(pg, "k")}::text AS account FROM api_keys k
    WHERE k.tenant_id = ${tenant}::text::uuid LIMIT ${mostAccounts + 1}`).pipe(
    Effect.flatMap(decodeAccounts),
    Effect.map((rows) => rows.map(({ account }) => account))
  )

/** Tokens by which the counters differ from the ledger, summed over the periods that have counters. */
export const driftOf = (survey: Pick<Snapshot, "totals">, truth: Omit<Truth, "account">): number =>
  periods.reduce((sum, period: Period) => {
    const counted = survey.totals[period]
    return counted === undefined ? sum : sum + Math.abs(counted - truth[period])
  }, 0)
