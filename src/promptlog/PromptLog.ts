/**
 * Stores prompts and answers of keys whose owner has opted in. It writes in the background, after the audit row. It may be
 * late or lose prompts, which a counter shows, but it never affects a request.
 *
 * *Details* A bounded queue and one writer. When the database is slow or away the queue fills up; then further prompts are
 * dropped and counted. The statement checks again that the key is opted in, so a request that was running when its owner
 * opted out is not stored.
 */
import { Context, Effect, Exit, Layer, Queue, Schedule, Semaphore } from "effect"
import { timeoutDetached } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { Metrics } from "../observability/Metrics.ts"
import { makeTranscript, type PromptRow } from "./transcript.ts"
import * as PgClient from "@effect/sql-pg/PgClient"

export interface PromptLogOptions {
  /** `PROMPT_LOG_DEFAULT_RETENTION_DAYS`, for keys without days of their own */
  readonly defaultDays: number
  /** how many transcripts may wait; default 128, of up to 128 KiB each */
  readonly capacity?: number
  /** how long a shutdown waits for unwritten transcripts; default 2000 */
  readonly drainMs?: number
}

const batch = 25

const make = Effect.fnUntraced(function* (options: PromptLogOptions) {
  const pg = yield* PgClient.PgClient
  const metrics = yield* Metrics
  const capacity = options.capacity ?? 128
  const waiting: Array<PromptRow> = []
  const wake = yield* Queue.sliding<void>(1)
  const writing = yield* Semaphore.make(1)

  const write = (rows: ReadonlyArray<PromptRow>) =>
    timeoutDetached("3 seconds")(pg`
      INSERT INTO prompt_log (request_id, key_id, created_at, expires_at, endpoint, prompt, answer, truncated)
      SELECT r.request_id, k.id, r.created_at,
        now() + make_interval(days => coalesce(k.prompt_log_days, ${options.defaultDays}::int)),
        r.endpoint, r.prompt, r.answer, r.truncated
      FROM jsonb_to_recordset(${pg.json(rows)}) AS r(request_id uuid, key_id uuid, created_at timestamptz,
        endpoint text, prompt text, answer text, truncated boolean)
      JOIN api_keys k ON k.id = r.key_id
      WHERE k.prompt_log
      ON CONFLICT (request_id) DO NOTHING`)

  /** Writes all waiting transcripts. A batch that cannot be written is dropped and counted, and the run fails. */
  const flush = Effect.gen(function* () {
    let failure: Exit.Exit<unknown, unknown> = Exit.void
    while (waiting.length > 0) {
      const rows = waiting.splice(0, batch)
      const exit = yield* Effect.exit(
        Effect.retry(write(rows), { schedule: Schedule.spaced("1 second"), times: 3 })
      )
      if (Exit.isSuccess(exit)) continue
      yield* metrics.promptsDropped(rows.length)
      failure = exit
    }
    return yield* failure
  }).pipe(writing.withPermits(1))

  yield* metrics.probe({
    name: "tollgate_prompt_log_backlog",
    help: "Transcripts of opted-in keys that wait to be written",
    read: Effect.sync(() => waiting.length)
  })
  // The pause between two runs ends when a transcript is queued.
  yield* background("prompt_log_writing", flush, later({ pause: () => Queue.take(wake) }))
  yield* Effect.addFinalizer(() =>
    flush.pipe(
      Effect.timeoutOption(options.drainMs ?? 2000),
      Effect.catchCause((cause) => Effect.logWarning("prompts lost at shutdown", cause)),
      Effect.andThen(Effect.suspend(() => metrics.promptsDropped(waiting.length)))
    )
  )

  return {
    transcript: makeTranscript((row) => {
      if (waiting.length >= capacity) return metrics.promptsDropped(1)
      waiting.push(row)
      return Effect.asVoid(Queue.offer(wake, undefined))
    })
  }
})

export class PromptLog extends Context.Service<PromptLog>()("tollgate/promptlog/PromptLog", { make }) {}

export const layerPostgres = (
  options: PromptLogOptions
): Layer.Layer<PromptLog, never, PgClient.PgClient | Metrics> => Layer.effect(PromptLog, make(options))

/**
 * Deletes logged prompts past their retention, in small batches, so that no delete holds locks for long, and returns their
 * number. Every replica does it; rows that another replica has locked are skipped.
 */
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

const retention = Effect.gen(function* () {
  const sweeping = Effect.tap(sweep(yield* PgClient.PgClient, 500), (swept) =>
    swept === 0 ? Effect.void : Effect.logInfo("expired prompts deleted", { prompts: swept })
  )
  yield* background("prompt_log_retention", sweeping, jittered(60_000))
})

export const layerRetention: Layer.Layer<never, never, PgClient.PgClient | Metrics> =
  Layer.effectDiscard(retention)
