/**
 * Ends requests whose lease has ended and which still hold tokens. The ledger decides how:
 *
 * - The intent is open: the process lives without a connection to the counters, or it died and crash recovery will settle
 *   the request. Nothing is done here.
 * - The request is in the log: its settlement never arrived. It is settled with the amount in the log.
 * - Neither: the process died between the reservation and the intent. The request never reached the backend and never
 *   will, because a process that finds its lease ended after writing the intent gives up (`request/admit.ts`). The reservation is
 *   undone. The same happens to a request whose process died and whose intent a crash of Postgres lost (docs/threat-model.md).
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { type Meter, type MeterDown } from "../gates/meter/Meter.ts"
import { type Account, claimsWithoutLimits, partsOf } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"

const HoldState = Schema.Struct({
  id: Schema.String,
  open: Schema.Boolean,
  /** the end user that it was charged to, and its model */
  user: Schema.NullOr(Schema.String),
  model: Schema.NullOr(Schema.String),
  booked: Schema.NullOr(Schema.Finite)
})
type HoldState = typeof HoldState.Type
const decodeStates = Schema.decodeUnknownEffect(Schema.Array(HoldState))

/** One statement, so that a request that is being closed is either open or in the log. */
export const readStates = (pg: PgClient.PgClient, ids: ReadonlyArray<string>) =>
  Effect.suspend(() => (ids.length === 0 ? Effect.succeed([]) : readSome(pg, ids)))

const readSome = (pg: PgClient.PgClient, ids: ReadonlyArray<string>) =>
  timeoutDetached("3 seconds")(pg`
    SELECT r.id::text, i.request_id IS NOT NULL AS open, a.user_account::text AS user, a.model,
      (a.tokens_in + a.tokens_out + coalesce(c.tokens_in + c.tokens_out, 0))::float8 AS booked
    FROM (SELECT jsonb_array_elements_text(${pg.json(ids)})::uuid AS id) AS r
    LEFT JOIN intents i ON i.request_id = r.id
    LEFT JOIN audit_log a ON a.request_id = r.id
    LEFT JOIN audit_corrections c ON c.request_id = r.id`).pipe(Effect.flatMap(decodeStates))

/** `at`: an instant (epoch ms) of the day to which a request counts when the store has lost its admission time. */
export const settleExpired = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  meter: Meter["Service"],
  account: Account,
  ids: ReadonlyArray<string>,
  at: number
) {
  const { group, key, ...parts } = account
  const end = ({ booked, id, model, open, user }: HoldState): Effect.Effect<boolean, MeterDown> => {
    if (open) return Effect.succeed(false)
    const claims = claimsWithoutLimits({ group, key }, { ...parts, ...partsOf(user, model) })
    if (booked === null) return Effect.as(meter.cancel({ id, claims }), true)
    const reservation = { id, claims, held: 0, available: 0, admittedAt: at, slot: false }
    return Effect.as(meter.settle(reservation, booked), true)
  }
  const ended = yield* Effect.filter(yield* readStates(pg, ids), end, { concurrency: 8 })
  if (ended.length > 0) {
    yield* Effect.logWarning("orphaned requests settled from the ledger", { requests: ended.length })
  }
})
