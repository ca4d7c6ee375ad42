/**
 * Ends the requests of processes that died: an intent whose lease has run out is closed as aborted with what it had
 * used when it last renewed, by whichever replica sees it first. The ledger first, then the counters: what a crash
 * in between leaves wrong is the counters', which are rebuilt from the ledger.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Duration, Effect, Layer, Schedule, Schema } from "effect"
import { answerWithin } from "../infra/Deadline.ts"
import { Meter, type Reservation } from "../gates/Meter/Meter.ts"
import { closeIntents } from "./statements.ts"

const Amount = Schema.Finite
const optionalAmount = Schema.optionalKey(Amount)
const optionalBucket = Schema.optionalKey(Schema.String)

/** A `Reservation` as the intent's row keeps it. */
const StoredReservation: Schema.Codec<Reservation, unknown> = Schema.Struct({
  id: Schema.String,
  claims: Schema.Struct({
    account: Schema.Struct({ group: Schema.String, key: Schema.String }),
    limits: Schema.Struct({ rpm: Amount, tpm: Amount, concurrent: Amount }),
    budgets: Schema.Struct({ day: optionalAmount, month: optionalAmount, total: optionalAmount })
  }),
  held: Amount,
  available: Amount,
  admittedAt: Amount,
  buckets: Schema.Struct({ day: optionalBucket, month: optionalBucket, total: optionalBucket }),
  slot: Schema.Boolean
})

const Expired = Schema.Struct({
  request_id: Schema.String,
  arrived_at: Schema.String,
  tenant_id: Schema.String,
  key_id: Schema.String,
  key_prefix: Schema.String,
  method: Schema.String,
  endpoint: Schema.String,
  model: Schema.String,
  streamed: Schema.Boolean,
  client_ip: Schema.String,
  client_request_id: Schema.NullOr(Schema.String),
  tokens_in: Amount,
  tokens_out: Amount,
  latency_ms: Amount,
  reservation: Schema.Unknown
})

const decodeExpired = Schema.decodeUnknownEffect(Schema.Array(Expired))
const decodeReservation = Schema.decodeUnknownEffect(StoredReservation)

const batch = 200

export interface ReconcilerOptions {
  /** seconds between two looks; default 5 */
  readonly everyS?: number
}

/** Closes one batch of expired intents and answers with them; another replica's batch is passed over. */
const closeExpired = (pg: PgClient.PgClient) =>
  pg.withTransaction(
    Effect.gen(function* () {
      const rows = yield* pg`
        SELECT request_id::text, to_char(arrived_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS arrived_at,
          tenant_id::text, key_id::text, key_prefix, method, endpoint, model, streamed, client_ip, client_request_id,
          tokens_in::float8, tokens_out::float8, reservation,
          least(2147483647, greatest(0, extract(epoch FROM lease_until - arrived_at) * 1000))::integer AS latency_ms
        FROM intents WHERE lease_until < now()
        ORDER BY request_id LIMIT ${batch} FOR UPDATE SKIP LOCKED`
      const expired = yield* decodeExpired(rows)
      if (expired.length > 0) {
        yield* closeIntents(pg)(
          expired.map(({ reservation: _, ...row }) => ({
            ...row,
            usage_source: "counted" as const,
            status: 500,
            error_type: "aborted"
          }))
        )
      }
      return expired
    })
  )

const make = (options: ReconcilerOptions) =>
  Effect.gen(function* () {
    const [pg, meter] = [yield* PgClient.PgClient, yield* Meter]
    const settle = Effect.fnUntraced(function* (row: typeof Expired.Type) {
      const reservation = yield* decodeReservation(row.reservation)
      yield* meter.settle(reservation, row.tokens_in + row.tokens_out)
    })
    const look = Effect.gen(function* () {
      const expired = yield* answerWithin("10 seconds")(closeExpired(pg))
      if (expired.length > 0) yield* Effect.logWarning(`closed ${expired.length} aborted requests`)
      yield* Effect.forEach(
        expired,
        (row) =>
          settle(row).pipe(
            Effect.retry({ schedule: Schedule.spaced("1 second"), times: 10 }),
            Effect.catch((error) => Effect.logError(`the counters of ${row.request_id} were not settled`, error))
          ),
        { concurrency: 8, discard: true }
      )
    })
    yield* look.pipe(
      Effect.catchCause((cause) => Effect.logDebug("aborted requests could not be looked for", cause)),
      Effect.repeat(Schedule.spaced(Duration.seconds(options.everyS ?? 5)).pipe(Schedule.jittered)),
      Effect.forkScoped
    )
  })

export const layerReconciler = (
  options: ReconcilerOptions = {}
): Layer.Layer<never, never, PgClient.PgClient | Meter> => Layer.effectDiscard(make(options))
