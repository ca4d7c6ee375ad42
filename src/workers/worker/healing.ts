/**
 * Gives back at once what a worker held that died: places in the queue, slots, tokens, open requests, its row in `replicas`.
 *
 * The primary asks for it only when the process has ended (`waitpid`): a slow worker is never taken for dead. Commands that
 * the dead worker had sent may still run, so the primary asks twice. What both rounds miss ends with its lease, as after
 * the death of a whole gateway (`ledger/CrashRecovery.ts`).
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Clock, Effect, Layer, Schema } from "effect"
import { FairQueue } from "../../gates/queue/FairQueue.ts"
import { SuspectAccounts } from "../../gates/limits/SuspectAccounts.ts"
import { Meter } from "../../gates/meter/Meter.ts"
import { claimsWithoutLimits } from "../../domain/Reservation.ts"
import { timeoutDetached } from "../../infra/time.ts"
import { closeExpired } from "../../ledger/expiredIntents.ts"
import { settleExpired } from "../../ledger/expiredHolds.ts"
import { Replicas } from "../../replicas/Replicas.ts"
import { type Casualty, toWorker } from "../protocol.ts"
import { hasMark } from "../requestIds.ts"
import { WorkerLink } from "./WorkerLink.ts"

/** Requests that are closed in one transaction. */
const batch = 200
/** Accounts that are looked through at the same time. */
const atOnce = 16

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))

/** A request could not be closed. */
class NotHealed extends Schema.TaggedError<NotHealed>()("NotHealed", { requests: Schema.Int }) {}

const make = Effect.gen(function* () {
  const [pg, meter, queue] = [yield* PgClient.PgClient, yield* Meter, yield* FairQueue]
  const [replicas, suspects] = [yield* Replicas, yield* SuspectAccounts]

  /** Charges and audits the requests that the dead worker had sent to the model server. */
  const closeRequests = Effect.fnUntraced(function* (mark: number) {
    const rows = yield* timeoutDetached("3 seconds")(pg`SELECT request_id::text AS id FROM intents`)
    const ids = (yield* decodeIds(rows)).map(({ id }) => id).filter((id) => hasMark(mark, id))
    let closed = 0
    let failed = 0
    for (const dead of Arr.chunksOf(ids, batch)) {
      const outcome = yield* closeExpired(pg, meter, suspects, { dead })
      closed += outcome.closed
      failed += outcome.failed.size
    }
    if (closed > 0) yield* Effect.logWarning("aborted requests closed", { requests: closed })
    if (failed > 0) return yield* new NotHealed({ requests: failed })
  })

  /** Gives back slots and tokens of requests that had not got that far, and slots of answers that were being written. */
  const freeHolds = Effect.fnUntraced(function* ({ accounts, mark }: Casualty) {
    const found = yield* Effect.forEach(
      accounts,
      (account) =>
        Effect.map(meter.holders(account), (ids) => ({
          account,
          ids: ids.filter((id) => hasMark(mark, id))
        })),
      { concurrency: atOnce }
    )
    const holds = found.filter(({ ids }) => ids.length > 0)
    if (holds.length === 0) return
    const at = yield* Clock.currentTimeMillis
    yield* settleExpired(pg, meter, holds, at)
    for (const { account, ids } of holds) {
      const claims = claimsWithoutLimits(account)
      yield* Effect.forEach(
        ids,
        (id) => meter.freeSlot({ id, claims, held: 0, available: 0, admittedAt: at, slot: false }),
        { concurrency: atOnce, discard: true }
      )
      suspects.add(account)
    }
  })

  return (casualty: Casualty) =>
    Effect.all(
      [
        queue.forget(casualty.id),
        Effect.andThen(closeRequests(casualty.mark), freeHolds(casualty)),
        replicas.leave(casualty.id)
      ],
      { discard: true, concurrency: "unbounded" }
    )
})

export const layerHealing = Layer.effectDiscard(
  Effect.gen(function* () {
    const [{ channel }, heal] = [yield* WorkerLink, yield* make]
    channel.answer(toWorker.heal, (casualty) =>
      Effect.tapCause(heal(casualty), (cause) => Effect.logDebug("worker not healed", cause))
    )
  })
)
