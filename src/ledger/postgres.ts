/** The ledger on Postgres: what keys, tenants and end users have spent, with the most that their open intents may still spend. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Semaphore, Struct } from "effect"
import { TimeZone } from "../domain/Calendar.ts"
import { periods } from "../domain/Limits.ts"
import { keysOfAccount } from "../gates/keys/accounts.ts"
import { DayUse, Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import { makeRowReader } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"
import { idOf, readTotals } from "./totals.ts"

const dayUses = makeRowReader(({ day }) => `the use of ${String(day)}`, DayUse)

export const layerPostgres: Layer.Layer<Ledger, never, PgClient.PgClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const { dayAt } = yield* TimeZone
    // Decides nothing, so it never takes more than one connection from the requests.
    const reading = yield* Semaphore.make(1)
    return Ledger.of({
      spent: (owner, at, longest) =>
        readTotals(pg, [owner], dayAt(at), {
          held: true,
          longest,
          within: owner.key === undefined ? "3 seconds" : "1 second"
        }).pipe(
          Effect.map((totals) => totals.get(idOf(owner))),
          Effect.flatMap((spent) =>
            spent === undefined ? Effect.fail("no sums") : Effect.succeed(Struct.pick(spent, periods))
          ),
          Effect.mapError((cause) => new LedgerDown({ cause }))
        ),
      uses: (account, since, limit) =>
        dayUses
          .all(pg`
            SELECT day::text, model, sum(requests)::float8 AS requests, sum(tokens_in)::float8 AS tokens_in,
              sum(tokens_out)::float8 AS tokens_out
            FROM usage_daily u WHERE u.key_id IN (${keysOfAccount(pg, account)}) AND u.day >= ${since}::text::date
            GROUP BY u.day, u.model ORDER BY u.day DESC, sum(u.tokens_in + u.tokens_out) DESC, u.model LIMIT ${limit}`)
          .pipe(
            reading.withPermits(1),
            timeoutDetached("1 second"),
            Effect.mapError((cause) => new LedgerDown({ cause }))
          )
    })
  })
)
