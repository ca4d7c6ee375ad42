/** What keys, end users and tenants have spent by the ledger in each period, and their open intents. */
import { Array as Arr, type Duration, Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { ledgerDay } from "../audit/rows.ts"
import type { Day } from "../domain/Calendar.ts"
import type { Period } from "../domain/Limits.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"
import { daysOf, since, sumsByPeriod } from "./periods.ts"

const Row = Schema.Struct({
  owner: Schema.String,
  /** intents */
  open: Schema.Finite,
  day: Schema.Finite,
  week: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite
})
export type Totals = Omit<typeof Row.Type, "owner">
const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Row))

/** Owners per statement. It sums all days of a key: for 1,000 keys with three years each that took 4 s. A tenant has many keys. */
const atOnce = { key: 100, user: 100, tenant: 1, model: 100 } as const

/** The table with the sums of an owner, and the column of it and of `intents` that names the owner. */
const rowsOf = {
  key: { table: "ledger", column: "key_id" },
  user: { table: "user_ledger", column: "user_account" },
  // The tenant that asked: a key may have another one by now.
  tenant: { table: "ledger", column: "tenant_id" },
  model: { table: "usage_daily", column: "key_id" }
} as const

const kindOf = ({ key, model, user }: CounterOwner) => {
  if (model !== undefined) return "model"
  return user !== undefined ? "user" : key === undefined ? "tenant" : "key"
}

/** The id of the user, the key or the tenant; of a model that of the key and its name. */
export const idOf = ({ group, key, model, user }: CounterOwner): string =>
  model === undefined ? (user ?? key ?? group) : `${key} ${model}`

export interface TotalsOptions {
  /** also what open intents hold; default: no */
  readonly held?: boolean
  /** the longest period that is read: sums of longer ones are too low; default: all */
  readonly longest?: Period
  readonly within?: Duration.Input
}

/** `own`: the keys of an account; of a user and a tenant, itself. A model has no budget longer than a day. */
const readSome = (
  sql: SqlClient.SqlClient,
  owners: ReadonlyArray<CounterOwner>,
  kind: keyof typeof rowsOf,
  day: Day,
  { held = false, longest = "total", within = "3 seconds" }: TotalsOptions
) => {
  const { column, table } = rowsOf[kind]
  const keys = "UNION SELECT o.id, k.id FROM o JOIN api_keys k ON k.budget_account = left(o.id, 36)::uuid"
  const ofModel = (row: string) =>
    sql.literal(
      kind === "model" ? `AND ${row}.model IN (substr(own.id, 38), substr(own.id, 38) || ':latest')` : ""
    )
  const first = sql.literal(since[kind === "model" ? "day" : longest])
  return timeoutDetached(within)(sql`
    WITH o AS (SELECT DISTINCT unnest(string_to_array(${owners.map(idOf).join("\n")}, chr(10))) AS id),
      own AS (SELECT id, left(id, 36)::uuid AS part FROM o ${sql.literal(column === "key_id" ? keys : "")}),
      at AS MATERIALIZED (${daysOf(sql, day)}),
      tokens AS (
        SELECT id, NULL::date AS day, 0 AS n, 0 AS open FROM o
        UNION ALL
        SELECT own.id, l.day, l.tokens_in + l.tokens_out, 0
        FROM at CROSS JOIN own JOIN ${sql.literal(table)} l ON l.${sql.literal(column)} = own.part AND l.day >= ${first} ${ofModel("l")}
        UNION ALL
        SELECT own.id, ${sql.literal(ledgerDay("i"))}, CASE WHEN ${held} THEN greatest(i.held, i.tokens_in + i.tokens_out) ELSE 0 END, 1
        FROM own JOIN intents i ON i.${sql.literal(column)} = own.part ${ofModel("i")}
      )
    SELECT id AS owner, sum(open)::float8 AS open, ${sumsByPeriod(sql, { day: "tokens.day", tokens: "n" })}
    FROM tokens CROSS JOIN at GROUP BY id`).pipe(Effect.flatMap(decodeRows))
}

/** By the id of the owner. */
export const readTotals = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  owners: ReadonlyArray<CounterOwner>,
  day: Day,
  options: TotalsOptions = {}
) {
  const reads = Object.values(Arr.groupBy(owners, kindOf)).flatMap((all) => {
    const kind = kindOf(all[0])
    return Arr.chunksOf(all, atOnce[kind]).map((some) => readSome(sql, some, kind, day, options))
  })
  const rows = yield* Effect.all(reads)
  return new Map(rows.flat().map(({ owner, ...totals }): readonly [string, Totals] => [owner, totals]))
})
