/**
 * The end of every request, whichever way it came: charged, audited, counted, once.
 *
 * It runs before the client sees the end (contract §6, §8): the response of a refusal, the object of a
 * non-stream answer and the last frame of a stream go out only after it.
 */
import { Clock, Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import { Metrics } from "../audit/Metrics.ts"
import type { AuditRecord } from "../audit/Record.ts"
import type { Unavailable } from "../domain/Errors.ts"
import { totalTokens } from "../domain/Usage.ts"
import { Meter } from "../gates/Meter/Meter.ts"
import { Aftercare } from "./Aftercare.ts"
import type { Exchange } from "./Exchange.ts"
import { requestLine } from "./requestLine.ts"

export interface Ending {
  readonly status: number
  /** the error's public type; absent when all went well */
  readonly errorType?: string
  /** nothing was consumed: the request leaves the counters as if it had never come */
  readonly refund?: boolean
}

/** Fails when the audit row could not be made durable in time; the row is then still on its way. */
export const conclude = Effect.fnUntraced(function* (
  exchange: Exchange,
  ending: Ending
): Effect.fn.Return<void, Unavailable, Audit | Meter | Metrics | Aftercare> {
  if (exchange.concluded) return
  exchange.concluded = true
  exchange.outcome = ending
  const usage = exchange.usage
  const record: AuditRecord = {
    arrival: exchange.arrival,
    streamed: exchange.streamed,
    usage,
    status: ending.status,
    latencyMs: Math.max(0, Math.round((yield* Clock.currentTimeMillis) - exchange.arrival.arrivedAt)),
    ...(exchange.caller === undefined ? {} : { caller: exchange.caller }),
    ...(exchange.model === undefined ? {} : { model: exchange.model }),
    ...(ending.errorType === undefined ? {} : { errorType: ending.errorType })
  }
  const [audit, metrics] = [yield* Audit, yield* Metrics]
  yield* metrics.observe(record, exchange.modelResolved)
  yield* requestLine(record)
  const written = exchange.opened ? audit.close(record) : audit.refuse(record)
  yield* Effect.all([written, settle(exchange, ending, totalTokens(usage))], {
    concurrency: 2,
    discard: true
  })
  // After the audit row, never instead of it.
  if (exchange.transcript !== undefined) yield* exchange.transcript.keep
}, Effect.uninterruptible)

/** The counters' side. A Meter that is down now is told later: the ledger already has the truth. */
const settle = Effect.fnUntraced(function* (exchange: Exchange, ending: Ending, tokens: number) {
  const reservation = exchange.reservation
  if (reservation === undefined) return
  const [meter, aftercare] = [yield* Meter, yield* Aftercare]
  if (ending.refund === true) {
    const cancel = meter.cancel(reservation)
    return yield* Effect.catch(cancel, () => aftercare.later(`cancel ${reservation.id}`, cancel))
  }
  const settling = meter.settle(reservation, tokens)
  yield* settling.pipe(
    Effect.tap((headroom) => Effect.sync(() => void (exchange.headroom = headroom))),
    Effect.catch(() => aftercare.later(`settle ${reservation.id}`, settling))
  )
})

/** For the finaliser of an exchange that never reached its own end: the client left, or something broke. */
export const abandon = (exchange: Exchange, ending: Ending) =>
  Effect.catch(conclude(exchange, ending), (error) =>
    Effect.logWarning("the audit row of an abandoned request is late", error.cause)
  )
