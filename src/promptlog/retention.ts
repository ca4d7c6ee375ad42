/**
 * Deletes logged prompts past their retention, in small batches, so that no delete holds locks for long. Every replica
 * does it; rows that another replica has locked are skipped.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer } from "effect"
import { timeoutDetached } from "../infra/time.ts"
import { background, jittered } from "../observability/background.ts"
import type { Metrics } from "../observability/Metrics.ts"

export interface RetentionOptions {
  /** seconds between two runs; default 60 */
  readonly everyS?: number
  /** rows per statement; default 500 */
  readonly batch?: number
}

/** Deletes expired rows and returns their number. */
export const sweep = Effect.fnUntraced(function* (pg: PgClient.PgClient, batch: number) {
  let swept = 0
  for (;;) {
    const rows = yield* timeoutDetached("5 seconds")(pg`
      DELETE FROM prompt_log WHERE request_id IN (
        SELECT request_id FROM prompt_log WHERE expires_at <= now()
        ORDER BY expires_at LIMIT ${batch} FOR UPDATE SKIP LOCKED)
      RETURNING 1`)
    swept += rows.length
    if (rows.length < batch) return swept
    yield* Effect.sleep("100 millis")
  }
})

const make = Effect.fnUntraced(function* (options: RetentionOptions) {
  const pg = yield* PgClient.PgClient
  const sweeping = Effect.tap(sweep(pg, options.batch ?? 500), (swept) =>
    swept === 0 ? Effect.void : Effect.logInfo("expired prompts deleted", { prompts: swept })
  )
  yield* background("prompt_log_retention", sweeping, jittered((options.everyS ?? 60) * 1000))
})

export const layerRetention = (
  options: RetentionOptions = {}
): Layer.Layer<never, never, PgClient.PgClient | Metrics> => Layer.effectDiscard(make(options))
