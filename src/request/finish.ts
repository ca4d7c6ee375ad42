/**
 * The end of every request, whichever way it came: charged, audited, counted, once.
 *
 * It runs before the client sees the end: the response of a refusal, the object of a
 * non-stream answer and the last frame of a stream go out only after it. They are encoded before it, because an answer
 * that cannot be encoded is not the answer the row would speak of.
 *
 * An answer that the kernel will not take at once keeps its slot: `release` frees it when the last byte is written or the
 * connection is gone.
 */
import { Cause, Effect } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import type { Unavailable } from "../domain/Errors.ts"
import { totalTokens, type Usage } from "../domain/Usage.ts"
import type { RequestContext } from "./RequestContext.ts"
import type { Ports } from "./Ports.ts"
import { requestLine } from "../observability/requestLine.ts"

export interface Outcome {
  readonly status: number
  /** the error's public type; absent when all went well */
  readonly errorType?: string
  /** the answer takes long to write: its slot stays taken until `release` */
  readonly keepSlot?: boolean
  /** a refusal without an audit row of its own: it is counted in one row with others (`audit/Tally.ts`) */
  readonly tallied?: boolean
}

/** The client left. That is no refusal of ours, so it costs the request even before the backend was called. */
const clientLeft = 499

/**
 * Whether the request leaves the counters as if it had never come: the gateway refused it. This follows from whether the
 * backend was called, never from the error: what the backend refuses has cost a call.
 */
const isFree = (context: RequestContext, ending: Outcome): boolean =>
  context.permit?.used !== true && (ending.status !== clientLeft || isWaiting(context))

/** Whoever leaves the line for the backend has cost nothing. */
const isWaiting = ({ queuedMs, queuedSince }: RequestContext): boolean =>
  queuedSince !== undefined && queuedMs === undefined

/** What is broken of ours must not keep a request from its end. A store that is down is no defect. */
const defect = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Cause.hasDies(cause) ? Effect.logError("defect", cause) : Effect.void

export const makeFinish = ({
  settlements,
  audit,
  leases,
  meter,
  metrics,
  nowMs,
  rates,
  requestLines
}: Ports) => {
  /** The counters' side. A Meter that is down now is told later: the ledger already has the truth. */
  const settle = (context: RequestContext, ending: Outcome, tokens: number): Effect.Effect<void> => {
    const { reservation } = context
    if (reservation === undefined) return Effect.void
    if (isFree(context, ending)) {
      const cancel = Effect.suspend(() => meter.cancel(reservation))
      return Effect.catchCause(cancel, (cause) =>
        Effect.andThen(defect(cause), settlements.retry(`cancel ${reservation.id}`, cancel))
      )
    }
    // Asked each time: a settlement that is repeated may come after the release.
    const settling = Effect.suspend(() =>
      meter.settle(reservation, tokens, context.slotKept ? { keepSlot: true } : undefined)
    )
    return Effect.matchCauseEffect(settling, {
      onSuccess: (headroom) => {
        context.headroom = headroom
        return Effect.void
      },
      onFailure: (cause) =>
        Effect.andThen(
          defect(cause),
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
    const broken = () =>
      settlements.retry(
        `audit ${record.arrival.requestId}`,
        Effect.flatten(put({ ...record, status: 500, errorType: "internal_error" }))
      )
    return Effect.map(Effect.tapDefect(put(record), broken), (durable) => Effect.tapDefect(durable, broken))
  }

  /** The cost of the request. What its answer says about the speed of its model is noted. */
  const charge = (context: RequestContext, ending: Outcome): Usage => {
    const model = context.model ?? ""
    const now = nowMs()
    if (ending.status === clientLeft) return context.usageWhenLeft((ms) => rates.estimate(model, ms), now)
    const usage = context.usage
    if (context.final !== undefined) rates.observe(model, usage.tokensOut, now - context.sentAt)
    return usage
  }

  const once = Effect.fnUntraced(function* (context: RequestContext, ending: Outcome) {
    context.finished = true
    context.outcome = ending
    context.slotKept = ending.keepSlot === true && context.reservation?.slot === true
    if (!context.slotKept) leases.drop(context)
    const usage = charge(context, ending)
    // The backend ended the answer by itself, or refused it: the place is free before the answer is written.
    if (context.place !== undefined && (context.final !== undefined || !context.sent)) {
      yield* context.place.giveBack
    }
    if (context.queuedSince !== undefined) context.queuedMs ??= Math.round(nowMs() - context.queuedSince)
    const record: AuditRecord = {
      arrival: context.arrival,
      streamed: context.streamed,
      usage,
      status: ending.status,
      latencyMs: Math.max(0, Math.round(nowMs() - context.arrivedMs)),
      ...(context.caller === undefined ? {} : { caller: context.caller }),
      ...(context.model === undefined ? {} : { model: context.model }),
      ...(context.queuedMs === undefined ? {} : { queuedMs: context.queuedMs }),
      ...(ending.errorType === undefined ? {} : { errorType: ending.errorType })
    }
    yield* Effect.catchCause(
      Effect.suspend(() => metrics.observe(record, context.modelResolved)),
      defect
    )
    // A flood must not become a flood of log lines: its row tells.
    if (requestLines && ending.tallied !== true) yield* requestLine(record)
    // The row is on its way while the counters are told; each to its end, whatever becomes of the other.
    const written = yield* Effect.exit(write(context, record, ending.tallied === true))
    yield* settle(context, ending, totalTokens(usage))
    yield* Effect.flatten(written)
    // After the audit row, never instead of it.
    if (context.transcript !== undefined) yield* context.transcript.keep
  }, Effect.uninterruptible)

  /**
   * Ends an request, once. Fails when the audit row could not be made durable in time; the row is then still on its
   * way.
   */
  const finish = (context: RequestContext, ending: Outcome): Effect.Effect<void, Unavailable> =>
    Effect.suspend(() => (context.finished ? Effect.void : once(context, ending)))

  /** Frees the slot that an request kept when it was finished. Costs nothing when it kept none. */
  const release = (context: RequestContext): Effect.Effect<void> =>
    Effect.suspend(() => {
      const { reservation } = context
      if (!context.slotKept || reservation === undefined) return Effect.void
      context.slotKept = false
      leases.drop(context)
      const freeing = Effect.suspend(() => meter.freeSlot(reservation))
      return Effect.catchCause(freeing, (cause) =>
        Effect.andThen(defect(cause), settlements.retry(`free the slot of ${reservation.id}`, freeing))
      )
    })

  return { finish, release }
}
