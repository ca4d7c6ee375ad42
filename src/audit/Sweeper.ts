/**
 * Deletes logged prompts whose time is over, a few at a time so that no delete holds locks or bloats for long. Every
 * replica sweeps; rows another is at are passed over.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Duration, Effect, Layer, Schedule } from "effect"
import { answerWithin } from "../infra/Deadline.ts"

export interface SweeperOptions {
  /** seconds between two sweeps; default 60 */
  readonly everyS?: number
  /** rows per statement; default 500 */
  readonly batch?: number
}

/** Deletes what has expired; answers how many rows that were. */
export const sweep = Effect.fnUntraced(function* (pg: PgClient.PgClient, batch: number) {
  let swept = 0
  for (;;) {
    const rows = yield* answerWithin("5 seconds")(pg`
      DELETE FROM prompt_log WHERE request_id IN (
        SELECT request_id FROM prompt_log WHERE expires_at <= now()
        ORDER BY expires_at LIMIT ${batch} FOR UPDATE SKIP LOCKED)
      RETURNING 1`)
    swept += rows.length
    if (rows.length < batch) return swept
    yield* Effect.sleep("100 millis")
  }
})

const make = Effect.fnUntraced(function* (options: SweeperOptions) {
  const pg = yield* PgClient.PgClient
  yield* sweep(pg, options.batch ?? 500).pipe(
    Effect.tap((swept) =>
      swept === 0 ? Effect.void : Effect.logInfo(`${swept} logged prompts past their retention deleted`)
    ),
    Effect.catchCause((cause) => Effect.logWarning("logged prompts could not be swept", cause)),
    Effect.repeat(Schedule.spaced(Duration.seconds(options.everyS ?? 60)).pipe(Schedule.jittered)),
    Effect.forkScoped
  )
})

export const layerSweeper = (options: SweeperOptions = {}): Layer.Layer<never, never, PgClient.PgClient> =>
  Layer.effectDiscard(make(options))
