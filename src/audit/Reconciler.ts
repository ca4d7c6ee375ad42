/**
 * Ends the requests of processes that died: an intent whose lease has run out is closed as aborted with what it had
 * used when it last renewed, by whichever replica sees it first.
 *
 * The counters first, then the ledger: settling is idempotent by request id, so a crash in between leaves an intent
 * that is settled once more to no effect, and counters that do not answer leave an intent that is found again. The
 * other way round the counters would keep for ever what the request held.
 *
 * After an outage of the database every lease has run out, those of living processes too: they get the time of a
 * heartbeat to say so before anybody is taken for dead.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Clock, Duration, Effect, Layer, Option, Schedule, Schema } from "effect"
import { answerWithin } from "../infra/Deadline.ts"
import { Meter, type Reservation } from "../gates/Meter/Meter.ts"
import { Doubts } from "./Doubts.ts"
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
  /** `CONCURRENCY_LEASE_S`; heartbeats come three times in a lease */
  readonly leaseS: number
  /** seconds between two looks; default a sixth of the lease, at most 5 */
  readonly everyS?: number
}

const make = (options: ReconcilerOptions) =>
  Effect.gen(function* () {
    const [pg, meter, doubts] = [yield* PgClient.PgClient, yield* Meter, yield* Doubts]
    const everyMs = (options.everyS ?? Math.min(5, options.leaseS / 6)) * 1000
    const graceMs = (options.leaseS * 1000) / 3

    const settled = (row: typeof Expired.Type) =>
      decodeReservation(row.reservation).pipe(
        Effect.tapError((cause) =>
          Effect.logError(`the reservation of ${row.request_id} cannot be read`, cause)
        ),
        Effect.option,
        Effect.flatMap(
          Option.match({
            // Nothing to settle it with: its hold goes with its period, the ledger has the truth.
            onNone: () => Effect.succeed(true),
            onSome: (reservation) =>
              Effect.match(meter.settle(reservation, row.tokens_in + row.tokens_out), {
                onSuccess: () => {
                  doubts.about(reservation.claims.account)
                  return true
                },
                onFailure: () => false
              })
          })
        )
      )

    /** Closes up to `limit` expired intents; another replica's are passed over. Answers how many it closed. */
    const closeExpired = (limit: number, offset: number) =>
      pg
        .withTransaction(
          Effect.gen(function* () {
            const rows = yield* pg`
            SELECT request_id::text, to_char(arrived_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS arrived_at,
              tenant_id::text, key_id::text, key_prefix, method, endpoint, model, streamed, client_ip, client_request_id,
              tokens_in::float8, tokens_out::float8, reservation,
              least(2147483647, greatest(0, extract(epoch FROM lease_until - arrived_at) * 1000))::integer AS latency_ms
            FROM intents WHERE lease_until < now()
            ORDER BY request_id LIMIT ${limit} OFFSET ${offset} FOR UPDATE SKIP LOCKED`
            const expired = yield* decodeExpired(rows)
            const ended = yield* Effect.filter(expired, settled, { concurrency: 8 })
            if (ended.length > 0) {
              yield* closeIntents(pg)(
                ended.map((row) => ({
                  ...row,
                  usage_source: "counted" as const,
                  status: 500,
                  error_type: "aborted"
                }))
              )
            }
            return { found: expired.length, closed: ended.length }
          })
        )
        .pipe(answerWithin("10 seconds"))

    /** A row nobody can close must not hold up the others: then each is tried alone. */
    const closeSingly = Effect.gen(function* () {
      let closed = 0
      for (let stuck = 0; stuck < batch;) {
        const one = yield* Effect.result(closeExpired(1, stuck))
        if (one._tag === "Success" && one.success.found === 0) break
        if (one._tag === "Success" && one.success.closed > 0) closed += 1
        else stuck += 1
      }
      return { found: closed, closed }
    })

    let answeringSince: number | undefined
    const look = Effect.gen(function* () {
      yield* answerWithin("1 second")(pg`SELECT FROM intents LIMIT 1`)
      const now = yield* Clock.currentTimeMillis
      answeringSince ??= now
      if (now - answeringSince < graceMs) return
      const { closed } = yield* Effect.catchTag(
        closeExpired(batch, 0),
        ["SqlError", "SchemaError"],
        () => closeSingly
      )
      if (closed > 0) yield* Effect.logWarning(`closed ${closed} aborted requests`)
    })
    yield* look.pipe(
      Effect.catchCause((cause) => {
        answeringSince = undefined
        return Effect.logDebug("aborted requests could not be looked for", cause)
      }),
      Effect.repeat(Schedule.spaced(Duration.millis(everyMs)).pipe(Schedule.jittered)),
      Effect.forkScoped
    )
  })

export const layerReconciler = (
  options: ReconcilerOptions
): Layer.Layer<never, never, PgClient.PgClient | Meter> => Layer.effectDiscard(make(options))
