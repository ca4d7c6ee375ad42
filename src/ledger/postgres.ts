/** The ledger on Postgres: what keys, tenants and end users have spent, with the most that their open intents may still spend. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Struct } from "effect"
import { TimeZone } from "../domain/Calendar.ts"
import { periods } from "../domain/Limits.ts"
import { Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import { idOf, readTotals } from "./totals.ts"

export const layerPostgres: Layer.Layer<Ledger, never, PgClient.PgClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const { dayAt } = yield* TimeZone
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
        )
    })
  })
)
