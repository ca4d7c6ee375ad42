/** Ends the requests of dead processes: together, and each alone when one of them cannot be ended. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { endExpired, isExpired, type Others } from "../audit/statements.ts"
import type { Account } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))

/** A request that cannot be ended: its row breaks the statement. */
export interface Stuck {
  readonly request_id: string
  readonly reason: string
}

/** How many requests were ended, and which cannot be. */
export interface Ended {
  readonly ended: number
  readonly stuck: ReadonlyArray<Stuck>
}

/** Is told the account of each request that was ended. */
type Told = (account: Account) => Effect.Effect<void>

/** Ends each request in a statement of its own. Returns how many it ended: one that is no longer there was ended elsewhere. */
export const endEach = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  ids: ReadonlyArray<string>,
  told: Told
) {
  const stuck: Array<Stuck> = []
  let ended = 0
  for (const id of ids) {
    const accounts = yield* Effect.catchTag(
      endExpired(pg, { only: id }),
      ["SqlError", "SchemaError"],
      (error) => {
        if (error._tag === "SqlError" && error.reason._tag === "ConnectionError") return Effect.fail(error)
        stuck.push({
          request_id: id,
          reason: error._tag === "SqlError" ? error.reason._tag : "unreadable row"
        })
        return Effect.succeed([])
      }
    )
    ended += accounts.length
    yield* Effect.forEach(accounts, told, { discard: true })
  }
  return { ended, stuck } satisfies Ended
})

export const endDead = (pg: PgClient.PgClient, which: Others, told: Told) =>
  endExpired(pg, which).pipe(
    Effect.tap((accounts) => Effect.forEach(accounts, told, { discard: true })),
    Effect.map((accounts): Ended => ({ ended: accounts.length, stuck: [] })),
    Effect.catchTag(["SqlError", "SchemaError"], () =>
      timeoutDetached("3 seconds")(pg`
        SELECT request_id::text AS id FROM intents WHERE ${isExpired(pg, which)} ORDER BY request_id LIMIT ${which.limit}`).pipe(
        Effect.flatMap(decodeIds),
        Effect.flatMap((rows) =>
          endEach(
            pg,
            rows.map(({ id }) => id),
            told
          )
        )
      )
    )
  )
