/**
 * Charges, audits and counts a request. Only `http/endRequest.ts` calls it, once for each request, after the backend
 * call has ended and before the client sees the end.
 *
 * An answer that the kernel does not take at once keeps its slot: `release` frees it when the last byte is written or
 * the connection is gone.
 */
import { Cause, Effect, Fiber } from "effect"
import { Audit } from "../audit/Audit.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import type { Reservation } from "../domain/Reservation.ts"
import type { Unavailable } from "../domain/Errors.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { noUsage, totalTokens, type Usage } from "../domain/Usage.ts"
import { SettlementQueue } from "../gates/limits/SettlementQueue.ts"
import { ModelRates } from "../gates/limits/TokenRates.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { headroomWithout } from "../gates/meter/verdicts.ts"
import { noticeableLoadMs } from "../gates/queue/QueueStore.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { RequestLines } from "../observability/logging.ts"
import type { RequestContext } from "./RequestContext.ts"

const nsPerMs = 1_000_000

/** How a request ends, and what is kept of it. */
export interface Ending {
  readonly outcome: Outcome
  /**
   * `shared`: the refusal is counted in one row with others (`audit/Tally.ts`), and has no log line. A request that may have an
   * intent always has its own row, which ends the intent.
   */
  readonly row: "own" | "shared"
  /** `kept`: the slot is kept until `release`, because the answer takes long to write */
  readonly slot: "freed" | "kept"
}

/**
 * Whether the gateway itself refused the request, so that it costs nothing. This depends on whether the backend was
 * called, never on the error: a request that the backend refused costs a call. A client that left was not refused,
 * unless it was still waiting for a place.
 */
const isFree = (context: RequestContext, { status }: Outcome): boolean =>
  context.cost.permit?.used !== true && (status !== outcomes.clientLeft.status || context.isWaiting)

/** The row of a request that ends at `now` (monotonic ms). Facts that it does not have are left out. */
const recordOf = (
  context: RequestContext,
  outcome: Outcome,
  usage: Usage,
  now: number,
  loadMs: number
): AuditRecord => {
  const { arrival, asked, caller, detail, endUser, model, queuedMs, resolved, truncated } = context
  const userAccount = context.cost.reservation?.claims.user?.id
  return {
    arrival,
    streamed: asked?.stream === true,
    usage,
    status: outcome.status,
    latencyMs: Math.max(0, Math.round(now - context.arrivedMs)),
    ...(caller === undefined ? {} : { caller }),
    ...(model === undefined ? {} : { model }),
    ...(resolved?.alias === undefined ? {} : { alias: resolved.alias }),
    ...(truncated === undefined ? {} : { truncated }),
    ...(endUser === undefined ? {} : { endUser }),
    ...(userAccount === undefined ? {} : { userAccount }),
    ...(queuedMs === undefined ? {} : { queuedMs }),
    ...(loadMs < noticeableLoadMs ? {} : { loadMs: Math.round(loadMs) }),
    ...(outcome.type === undefined ? {} : { errorType: outcome.type }),
    ...(detail === undefined ? {} : { detail })
  }
}

/**
 * Logs a defect and goes on, because the request must come to its end. An unavailable store is expected and not
 * logged here.
 */
const logDefect = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Cause.hasDies(cause) ? Effect.logError("defect", cause) : Effect.void

export const makeFinish = Effect.gen(function* () {
  const audit = yield* Audit
  const meter = yield* Meter
  const metrics = yield* Metrics
  const settlements = yield* SettlementQueue
  const nowMs = yield* makeMonotonicMs
  const rates = yield* ModelRates
  const writeLine = yield* RequestLines

  /** Gives the claims of a refused request back. The headers show what is left before that. */
  const cancel = (context: RequestContext, reservation: Reservation): Effect.Effect<void> => {
    if (context.headroom !== undefined) context.headroom = headroomWithout(context.headroom, reservation)
    const cancelling = Effect.suspend(() => meter.cancel(reservation))
    return Effect.catchCause(cancelling, (cause) =>
      Effect.andThen(logDefect(cause), settlements.retry(`cancel ${reservation.id}`, cancelling))
    )
  }

  /**
   * Settles with the counters. When the Meter is down, the settlement is delivered later. The ledger already has
   * the charge.
   */
  const settle = (context: RequestContext, reservation: Reservation, tokens: number): Effect.Effect<void> => {
    // Read each time, because a repeated settlement may come after the release.
    const settling = Effect.suspend(() =>
      meter.settle(reservation, tokens, context.cost.slotKept ? { keepSlot: true } : undefined)
    )
    return Effect.matchCauseEffect(settling, {
      onSuccess: (headroom) => Effect.sync(() => void (context.headroom = headroom)),
      onFailure: (cause) =>
        Effect.andThen(
          logDefect(cause),
          settlements.enqueue(reservation.claims.account, `settle ${reservation.id}`, settling)
        )
    })
  }

  /** Writes the audit row. After a defect the client gets a 500, and the row records that as soon as it can be written. */
  const write = (
    context: RequestContext,
    record: AuditRecord,
    row: Ending["row"]
  ): Effect.Effect<void, Unavailable> => {
    const put = (written: AuditRecord): Effect.Effect<void, Unavailable> =>
      Effect.suspend(() => {
        if (context.opened) return audit.close(written)
        return row === "shared" ? audit.tally(written) : audit.refuse(written)
      })
    const { status, type: errorType } = outcomes.internalError
    return Effect.tapDefect(put(record), () =>
      settlements.retry(`audit ${record.arrival.requestId}`, put({ ...record, status, errorType }))
    )
  }

  /** The cost of a request whose client did not leave. It also records how long an answer that nobody saw was. */
  const charge = ({ caller, cost, model = "" }: RequestContext): Usage => {
    const { usage } = cost
    if (cost.final !== undefined && caller !== undefined && cost.plan.unseen) {
      rates.answeredUnseen(caller.keyId, model, usage.tokensOut)
    }
    return usage
  }

  /** Fails when the audit row was not durable in time; the row is then still queued. */
  const finish = Effect.fnUntraced(function* (
    context: RequestContext,
    { outcome, row: wanted, slot }: Ending
  ) {
    const { cost } = context
    const now = nowMs()
    const row = context.opening ? "own" : wanted
    const free = isFree(context, outcome)
    context.end(outcome, now)
    const hasLeft = outcome.status === outcomes.clientLeft.status
    const used = hasLeft ? cost.usageWhenLeft : charge(context)
    // A defect may come after the call was recorded and before it was made.
    const usage = free ? noUsage : used
    cost.settle(slot === "kept")
    // Several requests may wait for one load. The queue says which one reports it.
    const loadMs =
      cost.place === undefined ? (cost.final?.loadDuration ?? 0) / nsPerMs : yield* cost.place.giveBack
    const record = recordOf(context, outcome, usage, now, loadMs)
    yield* Effect.catchCause(metrics.observe(record, context.resolved !== undefined), logDefect)
    // Refusals with a shared row may come in floods, so they have no log line.
    if (writeLine !== undefined && row === "own") yield* writeLine(record)
    const { reservation } = cost
    const settled =
      reservation === undefined
        ? Effect.void
        : free
          ? cancel(context, reservation)
          : settle(context, reservation, totalTokens(usage))
    // The row is written while the counters are settled. Neither stops the other.
    const writing = yield* Effect.forkChild(write(context, record, row), { startImmediately: true })
    yield* settled
    yield* Fiber.join(writing)
    // After the audit row, never instead of it.
    if (context.transcript !== undefined) yield* context.transcript.keep
  }, Effect.uninterruptible)

  /** Frees the slot that the request kept. Does nothing when it kept none. */
  const release = ({ cost }: RequestContext): Effect.Effect<void> =>
    Effect.suspend(() => {
      const { reservation } = cost
      if (!cost.slotKept || reservation === undefined) return Effect.void
      cost.slotKept = false
      const freeing = Effect.suspend(() => meter.freeSlot(reservation))
      return Effect.catchCause(freeing, (cause) =>
        Effect.andThen(logDefect(cause), settlements.retry(`free the slot of ${reservation.id}`, freeing))
      )
    })

  return { finish, release }
})
