/** What live counters at rest must be, by the ledger, and by how many tokens they differ. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Effect, Schema } from "effect"
import { type Period, periods } from "../domain/Limits.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import type { Meter, Snapshot, Surveyed } from "../gates/meter/Meter.ts"
import { timeoutDetached } from "../infra/time.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

/** A tenant with more accounts is not compared: Redis reads all of them in one script. */
const mostAccounts = 2000

const Truth = Schema.Struct({
  owner: Schema.String,
  /** intents */
  open: Schema.Finite,
  day: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite
})
type Truth = typeof Truth.Type
const decodeTruths = Schema.decodeUnknownEffect(Schema.Array(Truth))
const decodeAccounts = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ account: Schema.String })))

/** Owners per statement. It sums all days of a key: for 1,000 keys with three years each that took 4 s. A tenant has many keys. */
const atOnce = { key: 100, user: 100, tenant: 1 } as const

/** The rows of an owner `o`: `l` of the ledger, and its intents `i`. `k`: the keys of accounts. */
const rowsOf = {
  key: {
    booked: "k ON k.account = o.id LEFT JOIN ledger l ON l.key_id = k.key_id",
    open: "i.key_id IN (SELECT own.key_id FROM k own WHERE own.account = o.id)"
  },
  user: { booked: "user_ledger l ON l.user_account = o.id", open: "i.user_account = o.id" },
  // By the tenant that asked: a key may have another one by now.
  tenant: { booked: "ledger l ON l.tenant_id = o.id", open: "i.tenant_id = o.id" }
} as const

/** The first and last day of the month are computed once: computing the month of each row costs more than adding it. */
const truthsOf = (
  pg: PgClient.PgClient,
  kind: keyof typeof rowsOf,
  ids: ReadonlyArray<string>,
  instant: string
) =>
  timeoutDetached("3 seconds")(pg`
    WITH o AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(ids)}))::uuid[]) AS id),
      k AS (SELECT id AS account, id AS key_id FROM o
        UNION SELECT o.id, a.id FROM o JOIN api_keys a ON a.budget_account = o.id),
      at AS MATERIALIZED (${daysOf(pg, pg`${instant}::text::timestamptz`)})
    SELECT o.id::text AS owner,
      (SELECT count(*) FROM intents i WHERE ${pg.literal(rowsOf[kind].open)})::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM o CROSS JOIN at LEFT JOIN ${pg.literal(rowsOf[kind].booked)}
    GROUP BY o.id`).pipe(Effect.flatMap(decodeTruths))

const kindOf = ({ key, user }: CounterOwner) =>
  user !== undefined ? "user" : key === undefined ? "tenant" : "key"

/** The id of the user, the key or the tenant. */
const idOf = ({ group, key, user }: CounterOwner): string => user ?? key ?? group

export const nameOf = ({ group, key = "", user = "" }: CounterOwner): string => `${group}/${key}/${user}`

/** The ledger's totals of each owner, and the number of its open intents, by its id. */
export const readLedgerTotals = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  owners: ReadonlyArray<CounterOwner>,
  at: number
) {
  const instant = new Date(at).toISOString()
  const reads = Object.values(Arr.groupBy(owners, kindOf)).flatMap((all) =>
    Arr.chunksOf(all, atOnce[kindOf(all[0])]).map((some) =>
      truthsOf(pg, kindOf(some[0]), some.map(idOf), instant)
    )
  )
  const truths = yield* Effect.all(reads)
  return new Map(truths.flat().map(({ owner, ...truth }) => [owner, truth]))
})

/**
 * The accounts of a tenant, one more than `mostAccounts` at most. In one order, because the mark of their counters depends on it.
 */
export const readAccounts = (pg: PgClient.PgClient, tenant: string) =>
  timeoutDetached("3 seconds")(pg`
    SELECT DISTINCT ${accountOf(pg, "k")}::text AS account FROM api_keys k
    WHERE k.tenant_id = ${tenant}::text::uuid ORDER BY account LIMIT ${mostAccounts + 1}`).pipe(
    Effect.flatMap(decodeAccounts),
    Effect.map((rows) => rows.map(({ account }) => account))
  )

/** An owner, as the Meter reads its counters. */
export const surveyedOf = (pg: PgClient.PgClient, { group, key, user }: CounterOwner) =>
  key === undefined
    ? Effect.map(readAccounts(pg, group), (accounts): Surveyed => ({ group, accounts }))
    : Effect.succeed<Surveyed>({ group, key, ...(user === undefined ? {} : { user }) })

export const hasCounters = ({ totals }: Snapshot): boolean =>
  periods.some((period) => totals[period] !== undefined)

/** Whether nothing will change the counters that the ledger does not have yet. */
const isAtRest = ({ lapsed, open }: Snapshot): boolean => open === 0 && lapsed.length === 0

const isTooLarge = (of: Surveyed): boolean => of.key === undefined && of.accounts.length > mostAccounts
/** Stands for the counters of a tenant that is too large: they are never at rest. */
export const unread: Snapshot = { totals: {}, open: 1, lapsed: [], mark: 0 }

/**
 * The counters of owners, and then what the ledger says of them. `truth` is undefined for counters that do not exist or are not
 * at rest.
 */
export const compareWithLedger = Effect.fnUntraced(function* <O extends CounterOwner>(
  pg: PgClient.PgClient,
  meter: Meter["Service"],
  owners: ReadonlyArray<O>,
  at: number
) {
  const found = yield* Effect.forEach(
    owners,
    Effect.fnUntraced(function* (owner) {
      const surveyed = yield* surveyedOf(pg, owner)
      const survey = isTooLarge(surveyed) ? unread : yield* meter.snapshot(surveyed, at)
      return { owner, surveyed, survey }
    }),
    { concurrency: 8 }
  )
  const resting = found.filter(({ survey }) => hasCounters(survey) && isAtRest(survey))
  const truths = yield* readLedgerTotals(
    pg,
    resting.map(({ owner }) => owner),
    at
  )
  return found.map((one) => ({ ...one, truth: truths.get(idOf(one.owner)) }))
})

/** Tokens by which the counters differ from the ledger, summed over the periods that have counters. */
export const driftOf = (survey: Pick<Snapshot, "totals">, truth: Omit<Truth, "owner">): number =>
  periods.reduce((sum, period: Period) => {
    const counted = survey.totals[period]
    return counted === undefined ? sum : sum + Math.abs(counted - truth[period])
  }, 0)
