/** The ledger on Postgres: what keys, tenants and end users have spent, with the most that their open intents may still spend. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer } from "effect"
import { Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import { idOf, readTotals } from "./totals.ts"

export const layerPostgres: Layer.Layer<Ledger, never, PgClient.PgClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    return Ledger.of({
      spent: (owner, at, longest) =>
        readTotals(pg, [owner], at, {
          held: true,
          longest,
          within: owner.key === undefined ? "3 seconds" : "1 second"
        }).pipe(
          Effect.map((totals) => totals.get(idOf(owner))),
          Effect.flatMap((spent) =>
            spent === undefined
              ? Effect.fail("no sums")
              : Effect.succeed({ day: spent.day, month: spent.month, total: spent.total })
          ),
          Effect.mapError((cause) => new LedgerDown({ cause }))
        )
    })
  })
)
