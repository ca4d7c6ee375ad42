/**
 * Ends requests whose lease has ended and which hold tokens all the same, by what the ledger says of them.
 *
 * - Its intent is open: its process lives and is cut off from the counters, or it died and the Reconciler will settle
 *   it. Left alone.
 * - It is in the log: its settlement never arrived, and is made up for with what was booked.
 * - Neither: its process died between the reservation and the intent. It never reached the backend, and never will: who
 *   finds that its lease has ended by the time its intent is written gives up (`admit.ts`). Undone.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { type Meter, type MeterDown } from "../gates/meter/Meter.ts"
import type { Account } from "../domain/Reservation.ts"
import { timeoutDetached } from "../infra/time.ts"

export interface ExpiredHold {
  readonly account: Account
  readonly ids: ReadonlyArray<string>
}

const Fate = Schema.Struct({
  id: Schema.String,
  open: Schema.Boolean,
  booked: Schema.NullOr(Schema.Finite)
})
type Fate = typeof Fate.Type
const decodeFates = Schema.decodeUnknownEffect(Schema.Array(Fate))

/** One statement, so that a request that is being closed is either open or booked. */
const fatesOf = (pg: PgClient.PgClient, ids: ReadonlyArray<string>) =>
  timeoutDetached("3 seconds")(pg`
    SELECT r.id::text, i.request_id IS NOT NULL AS open,
      (a.tokens_in + a.tokens_out + coalesce(c.tokens_in + c.tokens_out, 0))::float8 AS booked
    FROM (SELECT jsonb_array_elements_text(${pg.json(ids)})::uuid AS id) AS r
    LEFT JOIN intents i ON i.request_id = r.id
    LEFT JOIN audit_log a ON a.request_id = r.id
    LEFT JOIN audit_corrections c ON c.request_id = r.id`).pipe(Effect.flatMap(decodeFates))

/** `at`: an instant (epoch ms) of the day that a request is taken for when the store has forgotten its own. */
export const settleExpired = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  meter: Meter["Service"],
  lapsed: ReadonlyArray<ExpiredHold>,
  at: number
) {
  const accounts = new Map(lapsed.flatMap(({ account, ids }) => ids.map((id) => [id, account] as const)))
  const end = ({ booked, id, open }: Fate): Effect.Effect<boolean, MeterDown> => {
    const account = accounts.get(id)
    if (open || account === undefined) return Effect.succeed(false)
    const claims = { account, limits: { rpm: 0, tpm: 0, concurrent: 0 }, budgets: {} }
    if (booked === null) return Effect.as(meter.cancel({ id, claims }), true)
    const grip = { id, claims, held: 0, available: 0, admittedAt: at, buckets: {}, slot: false }
    return Effect.as(meter.settle(grip, booked), true)
  }
  const fates = yield* fatesOf(pg, [...accounts.keys()])
  const ended = yield* Effect.filter(fates, end, { concurrency: 8 })
  if (ended.length > 0) {
    yield* Effect.logWarning("orphaned requests settled from the ledger", { requests: ended.length })
  }
})
