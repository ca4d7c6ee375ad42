/** The ledger on Postgres: what keys, tenants and end users have spent, with the most that their open intents may still spend. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Schema } from "effect"
import { Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"
import { keysOfAccount } from "../gates/keys/accounts.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

const Spent = Schema.Struct({ day: Schema.Finite, month: Schema.Finite, total: Schema.Finite })
const decodeSpent = Schema.decodeUnknownEffect(Schema.Tuple([Spent]))

/** The first day that counts in a period, so that the sum of a day does not read all days. */
const since = {
  day: (pg: PgClient.PgClient) => pg.literal("at.day"),
  month: (pg: PgClient.PgClient) => pg.literal("at.month"),
  total: (pg: PgClient.PgClient) => pg.literal("'-infinity'::date")
}

/** The intents of the owner: of a tenant those that its keys made, also of a key that has another tenant by now. */
const open = (pg: PgClient.PgClient, { group, key, user }: CounterOwner) => {
  if (key === undefined) return pg`tenant_id = ${group}::text::uuid`
  const ofKey = pg`key_id IN (${keysOfAccount(pg, key)})`
  return user === undefined ? ofKey : pg`${ofKey} AND user_account = ${user}::text::uuid`
}

/** The rows `l` of the owner. */
const booked = (pg: PgClient.PgClient, { group, key, user }: CounterOwner) => {
  if (user !== undefined) return pg`l.user_account = ${user}::text::uuid`
  return key === undefined
    ? pg`l.tenant_id = ${group}::text::uuid`
    : pg`l.key_id IN (${keysOfAccount(pg, key)})`
}

export const layerPostgres: Layer.Layer<Ledger, never, PgClient.PgClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    return Ledger.of({
      spent: (owner, at, longest) => {
        const { key, user } = owner
        return timeoutDetached(key === undefined ? "3 seconds" : "1 second")(
          pg`
            WITH at AS MATERIALIZED (${daysOf(pg, pg`${new Date(at).toISOString()}::text::timestamptz`)}),
            tokens AS (
              SELECT l.day, l.tokens_in + l.tokens_out AS n
              FROM at JOIN ${pg.literal(user === undefined ? "ledger" : "user_ledger")} l ON l.day >= ${since[longest](pg)}
              WHERE ${booked(pg, owner)}
              UNION ALL
              SELECT (admitted_at AT TIME ZONE 'UTC')::date, greatest(held, tokens_in + tokens_out)
              FROM intents WHERE ${open(pg, owner)}
            )
            SELECT ${sumsByPeriod(pg, { day: "tokens.day", tokens: "n" })} FROM at LEFT JOIN tokens ON true`
        ).pipe(
          Effect.flatMap(decodeSpent),
          Effect.map(([spent]) => spent),
          Effect.mapError((cause) => new LedgerDown({ cause }))
        )
      }
    })
  })
)
