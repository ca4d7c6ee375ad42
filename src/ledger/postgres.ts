/** The ledger on Postgres: what each key has spent, with the most that its open intents may still spend. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Schema } from "effect"
import { Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import { timeoutDetached } from "../infra/time.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

const Spent = Schema.Struct({ day: Schema.Finite, month: Schema.Finite, total: Schema.Finite })
const decodeSpent = Schema.decodeUnknownEffect(Schema.Tuple([Spent]))

export const layerPostgres: Layer.Layer<Ledger, never, PgClient.PgClient> = Layer.effect(
  Ledger,
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    return Ledger.of({
      spent: (keyId, at) =>
        timeoutDetached("1 second")(
          pg`
            WITH tokens AS (
              SELECT day, (tokens_in + tokens_out) AS n FROM ledger WHERE key_id = ${keyId}::text::uuid
              UNION ALL
              SELECT (admitted_at AT TIME ZONE 'UTC')::date, greatest(held, tokens_in + tokens_out)
              FROM intents WHERE key_id = ${keyId}::text::uuid
            ), at AS MATERIALIZED (${daysOf(pg, pg`${new Date(at).toISOString()}::text::timestamptz`)})
            SELECT ${sumsByPeriod(pg, { day: "tokens.day", tokens: "n" })} FROM at LEFT JOIN tokens ON true`
        ).pipe(
          Effect.flatMap(decodeSpent),
          Effect.map(([spent]) => spent),
          Effect.mapError((cause) => new LedgerDown({ cause }))
        )
    })
  })
)
