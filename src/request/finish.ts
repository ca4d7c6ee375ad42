/**
 * The end of a request: charged, audited and counted. `http/endRequest.ts` is the only caller, once for each request, after
 * the backend is done with it and before its client sees the end.
 *
 * An answer that the kernel will not take at once keeps its slot: `release` frees it when the last byte is written or the
 * connection is gone.
 */
import { Cause, Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import type { Unavailable } from "../domain/Errors.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { totalTokens, type Usage } from "../domain/Usage.ts"
import { SettlementQueue } from "../gates/limits/SettlementQueue.ts"
import { ModelRates } from "../gates/limits/TokenRates.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { headroomWithout } from "../gates/meter/verdicts.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { RequestLines, requestLine } from "../observability/requestLine.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

export interface FinishOptions {
  /** the answer takes long to write: its slot stays taken until `release` */
  readonly keepSlot: boolean
  /** a refusal without an audit row of its own: it is counted in one row with others (`audit/Tally.ts`) */
  readonly tallied: boolean
}

/**
 * Whether the request leaves the counters as if it had never come: the gateway refused it. This follows from whether the
 * backend was called, never from the error: what the backend refuses has cost a call. A client that leaves was not refused,
 * unless it was still waiting for a place.
 */
const isFree = (context: RequestContext, { status }: Outcome): boolean =>
  context.cost.permit?.used !== true && (status !== outcomes.clientLeft.status || context.isWaiting)

/** Logs a defect of ours and goes on: the request has to come to its end. A store that is down is no defect. */
const logDefect = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Cause.hasDies(cause) ? Effect.logError("defect", cause) : Effect.void

export const makeFinish = Effect.gen(function* () {
  const [audit, leases, meter, metrics, settlements] = [
    yield* Audit,
    yield* LeaseKeeper,
    yield* Meter,
    yield* Metrics,
    yield* SettlementQueue
  ]
  const [nowMs, rates, requestLines] = [yield* makeMonotonicMs, yield* ModelRates, yield* RequestLines]

  /** The counters' side. A Meter that is down now is told later: the ledger already has the truth. */
  const settle = (context: RequestContext, free: boolean, tokens: number): Effect.Effect<void> => {
    const { reservation } = context.cost
    if (reservation === undefined) return Effect.void
    if (free) {
      // The client is told what is left without the claims that are given back here.
      if (context.headroom !== undefined) context.show(headroomWithout(context.headroom, reservation))
      const cancel = Effect.suspend(() => meter.cancel(reservation))
      return Effect.catchCause(cancel, (cause) =>
        Effect.andThen(logDefect(cause), settlements.retry(`cancel ${reservation.id}`, cancel))
      )
    }
    // Asked each time: a settlement that is repeated may come after the release.
    const settling = Effect.suspend(() =>
      meter.settle(reservation, tokens, context.cost.slotKept ? { keepSlot: true } : undefined)
    )
    return Effect.matchCauseEffect(settling, {
      onSuccess: (headroom) => {
        context.show(headroom)
        return Effect.void
      },
      onFailure: (cause) =>
        Effect.andThen(
          logDefect(cause),
          settlements.enqueue(reservation.claims.account, `settle ${reservation.id}`, settling)
        )
    })
  }

  /**
   * The row. That of an admitted request is on its way once this succeeds, and what it gives waits for it. When it breaks,
   * the client is told of a defect, and the row says the same as soon as it can be written.
   */
  const write = (
    context: RequestContext,
    record: AuditRecord,
    tallied: boolean
  ): Effect.Effect<Effect.Effect<void, Unavailable>> => {
    const put = (row: AuditRecord) =>
      Effect.suspend(() =>
        context.opened ? audit.close(row) : Effect.succeed(tallied ? audit.tally(row) : audit.refuse(row))
      )
    const { status, type: errorType } = outcomes.internalError
    const retry = () =>
      settlements.retry(
        `audit ${record.arrival.requestId}`,
        Effect.flatten(put({ ...record, status, errorType }))
      )
    return Effect.map(Effect.tapDefect(put(record), retry), (durable) => Effect.tapDefect(durable, retry))
  }

  /** The cost of the request. What its answer says about the speed of its model is noted. */
  const charge = (context: RequestContext, { status }: Outcome): Usage => {
    const model = context.model ?? ""
    const { cost } = context
    const now = nowMs()
    if (status === outcomes.clientLeft.status) {
      return cost.usageWhenLeft((ms) => rates.estimate(model, ms), now)
    }
    const { usage } = cost
    if (cost.final !== undefined) rates.observe(model, usage.tokensOut, now - cost.sentAt)
    return usage
  }

  /** Fails when the audit row could not be made durable in time; the row is then still on its way. */
  const finish = Effect.fnUntraced(function* (
    context: RequestContext,
    outcome: Outcome,
    { keepSlot, tallied }: FinishOptions
  ): Effect.fn.Return<void, Unavailable> {
    const now = nowMs()
    const free = isFree(context, outcome)
    context.end(outcome, now)
    context.cost.settle(keepSlot)
    if (!context.cost.slotKept) leases.drop(context.cost)
    const usage = charge(context, outcome)
    // The backend is done with the request: the place is free before the answer is written.
    if (context.cost.place !== undefined) yield* context.cost.place.giveBack
    const record: AuditRecord = {
      arrival: context.arrival,
      streamed: context.streamed,
      usage,
      status: outcome.status,
      latencyMs: Math.max(0, Math.round(now - context.arrivedMs)),
      ...(context.caller === undefined ? {} : { caller: context.caller }),
      ...(context.model === undefined ? {} : { model: context.model }),
      ...(context.queuedMs === undefined ? {} : { queuedMs: context.queuedMs }),
      ...(outcome.type === undefined ? {} : { errorType: outcome.type })
    }
    yield* Effect.catchCause(
      Effect.suspend(() => metrics.observe(record, context.modelResolved)),
      logDefect
    )
    // A flood must not become a flood of log lines: its row tells.
    if (requestLines && !tallied) yield* requestLine(record)
    // The row is on its way while the counters are told; each to its end, whatever becomes of the other.
    const written = yield* Effect.exit(write(context, record, tallied))
    yield* settle(context, free, totalTokens(usage))
    yield* Effect.flatten(written)
    // After the audit row, never instead of it.
    if (context.transcript !== undefined) yield* context.transcript.keep
  }, Effect.uninterruptible)

  /** Frees the slot that a request kept when it was finished. Costs nothing when it kept none. */
  const release = (context: RequestContext): Effect.Effect<void> =>
    Effect.suspend(() => {
      const { reservation } = context.cost
      if (!context.cost.slotKept || reservation === undefined) return Effect.void
      context.cost.freeSlot()
      leases.drop(context.cost)
      const freeing = Effect.suspend(() => meter.freeSlot(reservation))
      return Effect.catchCause(freeing, (cause) =>
        Effect.andThen(logDefect(cause), settlements.retry(`free the slot of ${reservation.id}`, freeing))
      )
    })

  return { finish, release }
})
