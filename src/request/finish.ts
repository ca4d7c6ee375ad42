/**
 * Charges, audits and counts a request. Only `http/endRequest.ts` calls it, once for each request, after the backend
 * call has ended and before the client sees the end.
 */
import { Cause, Effect, Exit, Result } from "effect"
import { Audit, type Written } from "../audit/Audit.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import type { Reservation } from "../domain/Reservation.ts"
import { type Outcome, outcomes } from "../domain/Outcome.ts"
import { noUsage, totalTokens, type Usage } from "../domain/Usage.ts"
import { SettlementQueue } from "../gates/limits/SettlementQueue.ts"
import { ModelHabits } from "../gates/limits/ModelHabits.ts"
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
  /** why it was refused, for the audit */
  readonly detail?: string | undefined
  /** what its client is told in `X-Hint`, for its log line */
  readonly hint?: string | undefined
}

/** The row of a request that ends at `now` (monotonic ms). Facts that it does not have are left out. */
const recordOf = (
  context: RequestContext,
  { detail, hint, outcome }: Ending,
  usage: Usage,
  now: number,
  loadMs: number
): AuditRecord => {
  const { arrival, caller, model, queuedMs, truncated } = context
  const { asked, endUser } = context.said
  const { alias, reservation } = context.cost.facts
  const userAccount = reservation?.claims.user?.id
  return {
    arrival,
    streamed: asked?.stream === true,
    usage,
    status: outcome.status,
    latencyMs: Math.max(0, Math.round(now - context.arrivedMs)),
    ...(caller === undefined ? {} : { caller }),
    ...(model === undefined ? {} : { model }),
    ...(alias === undefined ? {} : { alias }),
    ...(truncated === undefined ? {} : { truncated }),
    ...(endUser === undefined ? {} : { endUser }),
    ...(userAccount === undefined ? {} : { userAccount }),
    ...(queuedMs === undefined ? {} : { queuedMs }),
    ...(loadMs < noticeableLoadMs ? {} : { loadMs: Math.round(loadMs) }),
    ...(outcome.type === undefined ? {} : { errorType: outcome.type }),
    ...(detail === undefined ? {} : { detail }),
    ...(hint === undefined ? {} : { hint })
  }
}

/**
 * Logs a defect and goes on, because the request must come to its end. An unavailable store is expected and not
 * logged here.
 */
const logDefect = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Cause.hasDies(cause) ? Effect.logError("defect", cause) : Effect.void

/** Runs what must not stop the rest when it throws. */
const attempt = <A>(run: () => A): Exit.Exit<A> =>
  Result.match(Result.try({ try: run, catch: Exit.die }), {
    onFailure: (died) => died,
    onSuccess: Exit.succeed
  })

export const makeFinish = Effect.gen(function* () {
  const audit = yield* Audit
  const meter = yield* Meter
  const metrics = yield* Metrics
  const settlements = yield* SettlementQueue
  const nowMs = yield* makeMonotonicMs
  const habits = yield* ModelHabits
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
    const settling = Effect.suspend(() => meter.settle(reservation, tokens))
    return Effect.matchCauseEffect(settling, {
      onSuccess: (headroom) => {
        context.headroom = headroom
        return Effect.void
      },
      onFailure: (cause) =>
        Effect.andThen(
          logDefect(cause),
          settlements.enqueue(reservation.claims.account, `settle ${reservation.id}`, settling)
        )
    })
  }

  /** The cost of a request whose client did not leave. It also records how long an answer that nobody saw was. */
  const charge = ({ caller, cost, model = "" }: RequestContext): Usage => {
    const { usage } = cost
    if (cost.final !== undefined && caller !== undefined && cost.call.plan.unseen) {
      habits.answeredUnseen(caller.keyId, model, usage.tokensOut)
    }
    return usage
  }

  /** Fails when the audit row was not durable in time; the row is then still queued. */
  return Effect.fnUntraced(function* (context: RequestContext, ending: Ending) {
    const { cost } = context
    const { outcome } = ending
    const { place } = cost.facts
    const now = nowMs()
    // From its place on, it may have an intent.
    const row = "place" in cost.facts ? "own" : ending.row
    const hasLeft = outcome.status === outcomes.clientLeft.status
    // Then the gateway itself refused it, and it costs nothing. A request that the backend refused costs a call, whatever its error is. A
    // client that left was not refused, unless it was still waiting for a place.
    const free = cost.permit?.used !== true && (!hasLeft || context.isWaiting)
    const used = hasLeft ? cost.usageWhenLeft : charge(context)
    // A defect may stop a request between the record of its call and the call.
    const usage = free ? noUsage : used
    cost.end(outcome, now)
    // Several requests may wait for one load. The queue says which one reports it.
    const loadMs =
      place === undefined
        ? (cost.final?.loadDuration ?? 0) / nsPerMs
        : yield* Effect.catchCause(place.giveBack, (cause) => Effect.as(logDefect(cause), 0))
    const record = recordOf(context, ending, usage, now, loadMs)
    const observed = attempt(() => metrics.observe(record, cost.facts.model !== undefined))
    if (Exit.isFailure(observed)) yield* logDefect(observed.cause)
    // Refusals with a shared row may come in floods, so they have no log line.
    if (writeLine !== undefined && row === "own") yield* Effect.catchCause(writeLine(record), logDefect)
    const { held } = cost
    const settled =
      held === undefined
        ? Effect.void
        : free
          ? cancel(context, held.reservation)
          : settle(context, held.reservation, totalTokens(usage))
    const accept = (written: AuditRecord): Written => {
      if (cost.permit !== undefined) return audit.close(written)
      return row === "shared" ? audit.tally(written) : audit.refuse(written)
    }
    // The row is written while the counters are settled. Neither stops the other.
    const accepted = attempt(() => accept(record))
    yield* settled
    const written = Exit.isSuccess(accepted) ? yield* Effect.exit(accepted.value) : accepted
    if (Exit.hasDies(written)) {
      // The client gets a 500, and the row records that as soon as it can be written.
      const { status, type: errorType } = outcomes.internalError
      const again = Effect.suspend(() => accept({ ...record, status, errorType }))
      yield* settlements.retry(`audit ${record.arrival.requestId}`, again)
    }
    yield* Exit.asVoid(written)
    // After the audit row, never instead of it.
    if (context.transcript !== undefined) yield* context.transcript.keep
  }, Effect.uninterruptible)
})
