/**
 * The end of every request, whichever way it came: charged, audited, counted, once.
 *
 * It runs before the client sees the end (contract §6, §8): the response of a refusal, the object of a
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
import type { Exchange } from "./RequestContext.ts"
import type { Ports } from "./Ports.ts"
import { requestLine } from "../observability/requestLine.ts"

export interface Ending {
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
const isFree = (exchange: Exchange, ending: Ending): boolean =>
  exchange.permit?.used !== true && (ending.status !== clientLeft || isWaiting(exchange))

/** Whoever leaves the line for the backend has cost nothing. */
const isWaiting = ({ queuedMs, queuedSince }: Exchange): boolean =>
  queuedSince !== undefined && queuedMs === undefined

/** What is broken of ours must not keep a request from its end. A store that is down is no defect. */
const defect = (cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Cause.hasDies(cause) ? Effect.logError("defect", cause) : Effect.void

export const makeConclude = ({
  aftercare,
  audit,
  leases,
  meter,
  metrics,
  nowMs,
  rates,
  requestLines
}: Ports) => {
  /** The counters' side. A Meter that is down now is told later: the ledger already has the truth. */
  const settle = (exchange: Exchange, ending: Ending, tokens: number): Effect.Effect<void> => {
    const { reservation } = exchange
    if (reservation === undefined) return Effect.void
    if (isFree(exchange, ending)) {
      const cancel = Effect.suspend(() => meter.cancel(reservation))
      return Effect.catchCause(cancel, (cause) =>
        Effect.andThen(defect(cause), aftercare.later(`cancel ${reservation.id}`, cancel))
      )
    }
    // Asked each time: a settlement that is repeated may come after the release.
    const settling = Effect.suspend(() =>
      meter.settle(reservation, tokens, exchange.slotKept ? { keepSlot: true } : undefined)
    )
    return Effect.matchCauseEffect(settling, {
      onSuccess: (headroom) => {
        exchange.headroom = headroom
        return Effect.void
      },
      onFailure: (cause) =>
        Effect.andThen(
          defect(cause),
          aftercare.owe(reservation.claims.account, `settle ${reservation.id}`, settling)
        )
    })
  }

  /**
   * The row. That of an admitted request is on its way once this succeeds, and what it gives waits for it. When it breaks,
   * the client is told of a defect, and the row says the same as soon as it can be written.
   */
  const write = (
    exchange: Exchange,
    record: AuditRecord,
    tallied: boolean
  ): Effect.Effect<Effect.Effect<void, Unavailable>> => {
    const put = (row: AuditRecord) =>
      Effect.suspend(() =>
        exchange.opened ? audit.close(row) : Effect.succeed(tallied ? audit.tally(row) : audit.refuse(row))
      )
    const broken = () =>
      aftercare.later(
        `audit ${record.arrival.requestId}`,
        Effect.flatten(put({ ...record, status: 500, errorType: "internal_error" }))
      )
    return Effect.map(Effect.tapDefect(put(record), broken), (durable) => Effect.tapDefect(durable, broken))
  }

  /** The cost of the request. What its answer says about the speed of its model is noted. */
  const charge = (exchange: Exchange, ending: Ending): Usage => {
    const model = exchange.model ?? ""
    const ms = nowMs() - exchange.sentAt
    if (ending.status === clientLeft) return exchange.usageWhenLeft(rates.estimate(model, ms))
    const usage = exchange.usage
    if (exchange.final !== undefined) rates.observe(model, usage.tokensOut, ms)
    return usage
  }

  const once = Effect.fnUntraced(function* (exchange: Exchange, ending: Ending) {
    exchange.concluded = true
    exchange.outcome = ending
    exchange.slotKept = ending.keepSlot === true && exchange.reservation?.slot === true
    if (!exchange.slotKept) leases.drop(exchange)
    const usage = charge(exchange, ending)
    // The backend ended the answer by itself, or refused it: the place is free before the answer is written.
    if (exchange.place !== undefined && (exchange.final !== undefined || !exchange.sent)) {
      yield* exchange.place.giveBack
    }
    if (exchange.queuedSince !== undefined) exchange.queuedMs ??= Math.round(nowMs() - exchange.queuedSince)
    const record: AuditRecord = {
      arrival: exchange.arrival,
      streamed: exchange.streamed,
      usage,
      status: ending.status,
      latencyMs: Math.max(0, Math.round(nowMs() - exchange.arrivedMs)),
      ...(exchange.caller === undefined ? {} : { caller: exchange.caller }),
      ...(exchange.model === undefined ? {} : { model: exchange.model }),
      ...(exchange.queuedMs === undefined ? {} : { queuedMs: exchange.queuedMs }),
      ...(ending.errorType === undefined ? {} : { errorType: ending.errorType })
    }
    yield* Effect.catchCause(
      Effect.suspend(() => metrics.observe(record, exchange.modelResolved)),
      defect
    )
    // A flood must not become a flood of log lines: its row tells.
    if (requestLines && ending.tallied !== true) yield* requestLine(record)
    // The row is on its way while the counters are told; each to its end, whatever becomes of the other.
    const written = yield* Effect.exit(write(exchange, record, ending.tallied === true))
    yield* settle(exchange, ending, totalTokens(usage))
    yield* Effect.flatten(written)
    // After the audit row, never instead of it.
    if (exchange.transcript !== undefined) yield* exchange.transcript.keep
  }, Effect.uninterruptible)

  /**
   * Ends an exchange, once. Fails when the audit row could not be made durable in time; the row is then still on its
   * way.
   */
  const conclude = (exchange: Exchange, ending: Ending): Effect.Effect<void, Unavailable> =>
    Effect.suspend(() => (exchange.concluded ? Effect.void : once(exchange, ending)))

  /** Frees the slot that an exchange kept when it was concluded. Costs nothing when it kept none. */
  const release = (exchange: Exchange): Effect.Effect<void> =>
    Effect.suspend(() => {
      const { reservation } = exchange
      if (!exchange.slotKept || reservation === undefined) return Effect.void
      exchange.slotKept = false
      leases.drop(exchange)
      const freeing = Effect.suspend(() => meter.freeSlot(reservation))
      return Effect.catchCause(freeing, (cause) =>
        Effect.andThen(defect(cause), aftercare.later(`free the slot of ${reservation.id}`, freeing))
      )
    })

  return { conclude, release }
}
