/** Closes intents with an expired lease: settles them with the counters, then writes audit row and ledger as aborted. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Option, Schema } from "effect"
import { timeoutDetached } from "../infra/time.ts"
import type { Meter } from "../gates/meter/Meter.ts"
import { outcomes } from "../domain/Outcome.ts"
import { closeIntents } from "../audit/statements.ts"
import { StoredReservation } from "../domain/Reservation.ts"
import type { SuspectAccounts } from "../gates/limits/SuspectAccounts.ts"

const Amount = Schema.Finite

const Expired = Schema.Struct({
  request_id: Schema.String,
  arrived_at: Schema.String,
  admitted_at: Schema.String,
  tenant_id: Schema.String,
  key_id: Schema.String,
  key_prefix: Schema.String,
  method: Schema.String,
  endpoint: Schema.String,
  model: Schema.String,
  streamed: Schema.Boolean,
  client_ip: Schema.String,
  client_request_id: Schema.NullOr(Schema.String),
  end_user: Schema.NullOr(Schema.String),
  alias: Schema.NullOr(Schema.String),
  tokens_in: Amount,
  tokens_out: Amount,
  latency_ms: Amount,
  reservation: Schema.Unknown,
  /** whether the log has its row: it was refused, or its own process ended it */
  logged: Schema.Boolean
})
type Expired = typeof Expired.Type

const decodeReservation = Schema.decodeUnknownEffect(StoredReservation)
const decodeExpired = Schema.decodeUnknownEffect(Schema.Array(Expired))

/** One request, or up to `limit` requests other than those of `but`. */
export type Which =
  | { readonly only: string }
  | { readonly but: ReadonlyArray<string>; readonly limit: number }

export interface Outcome {
  readonly closed: number
  /** ids of requests that stay open, and why */
  readonly failed: ReadonlyMap<string, string>
}

/** Skips requests that another replica is closing. Fails as a whole when one row breaks the statement. */
export const closeExpired = (
  pg: PgClient.PgClient,
  meter: Meter["Service"],
  suspects: SuspectAccounts["Service"],
  which: Which
) => {
  const failed = new Map<string, string>()

  /** Returns whether the counters have settled the request. */
  const settled = Effect.fnUntraced(function* (row: Expired) {
    const reservation = yield* decodeReservation(row.reservation).pipe(
      Effect.tapError((cause) =>
        Effect.logError("reservation unreadable", { request_id: row.request_id }, cause)
      ),
      Effect.option
    )
    const account = Option.match(reservation, {
      onNone: () => ({ group: row.tenant_id, key: row.key_id }),
      onSome: ({ claims }) => claims.account
    })
    // Without a readable reservation it cannot be settled. Its hold ends with its period, and the ledger is right.
    // A request in the log costs what its row says. The intent has the estimate of the prompt, which a refused request does
    // not cost. If the counters still hold something for it, `expiredHolds.ts` settles it.
    const settling =
      row.logged || Option.isNone(reservation)
        ? Effect.void
        : meter.settle(reservation.value, row.tokens_in + row.tokens_out)
    return yield* Effect.match(settling, {
      onSuccess: () => {
        suspects.add(account)
        return true
      },
      onFailure: () => {
        failed.set(row.request_id, "the counters do not answer")
        return false
      }
    })
  })

  const chosen =
    "only" in which
      ? pg`lease_until < now() AND request_id = ${which.only}::text::uuid`
      : pg`lease_until < now() AND request_id <> ALL (ARRAY(SELECT jsonb_array_elements_text(${pg.json(which.but)}))::uuid[])`
  const limit = "only" in which ? 1 : which.limit

  return pg
    .withTransaction(
      Effect.gen(function* () {
        const rows = yield* pg`
          SELECT request_id::text, arrived_at::text, admitted_at::text,
            tenant_id::text, key_id::text, key_prefix, method, endpoint, model, streamed, client_ip, client_request_id, end_user, alias,
            tokens_in::float8, tokens_out::float8, reservation,
            least(2147483647, greatest(0, extract(epoch FROM least(lease_until, now()) - arrived_at) * 1000))::integer AS latency_ms,
            EXISTS (SELECT FROM audit_log a WHERE a.request_id = intents.request_id) AS logged
          FROM intents WHERE ${chosen}
          ORDER BY request_id LIMIT ${limit} FOR UPDATE SKIP LOCKED`
        const expired = yield* decodeExpired(rows)
        const ended = yield* Effect.filter(expired, settled, { concurrency: 8 })
        if (ended.length > 0) {
          yield* closeIntents(pg)(
            ended.map((row) => ({
              ...row,
              usage_source: "counted" as const,
              queued_ms: null,
              truncated: null,
              repeats: 1,
              status: outcomes.aborted.status,
              error_type: outcomes.aborted.type
            }))
          )
        }
        return { closed: ended.length, failed } satisfies Outcome
      })
    )
    .pipe(timeoutDetached("10 seconds"))
}
