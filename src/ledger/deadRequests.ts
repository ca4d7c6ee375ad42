/** Ends the requests of dead processes, each in a statement of its own: one that cannot be ended delays no other. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { endExpired, isExpired } from "../audit/statements.ts"
import type { Account } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))

/** Requests read at once. */
const batch = 200

/** Requests other than those of `but`, whose lease ended more than `overS` ago, the oldest first. */
export const readExpired = (pg: PgClient.PgClient, but: ReadonlyArray<string>, overS = 0) =>
  timeoutDetached("3 seconds")(pg`
    SELECT request_id::text AS id FROM intents WHERE ${isExpired(pg, overS)}
      AND request_id <> ALL (ARRAY(SELECT jsonb_array_elements_text(${pg.json(but)}))::uuid[])
    ORDER BY request_id LIMIT ${batch}`).pipe(
    Effect.flatMap(decodeIds),
    Effect.map((rows) => rows.map(({ id }) => id))
  )

/**
 * Ends requests. `told`: the account of each. Returns how many it ended, and those whose row breaks the statement: they cannot be
 * ended. It stops when the database does not answer.
 */
export const endEach = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  ids: ReadonlyArray<string>,
  told: (account: Account) => Effect.Effect<void>
) {
  const stuck: Array<{ readonly request_id: string; readonly reason: string }> = []
  let ended = 0
  const end = Effect.fnUntraced(function* (id: string) {
    const account = yield* endExpired(pg, id)
    if (account === undefined) return
    ended += 1
    yield* told(account)
  })
  const endOrNote = (id: string) =>
    Effect.catchTag(end(id), ["SqlError", "SchemaError"], (error) => {
      if (error._tag === "SqlError" && error.reason._tag === "ConnectionError") return Effect.fail(error)
      const reason = error._tag === "SqlError" ? error.reason._tag : "unreadable row"
      return Effect.sync(() => void stuck.push({ request_id: id, reason }))
    })
  yield* Effect.forEach(ids, endOrNote, { concurrency: 4, discard: true })
  return { ended, stuck }
})
