/**
 * Refusals that are counted instead of written one by one: one row a second for each sender and kind of refusal, with
 * the number of requests in `repeats`. A flood of refusals then costs the database as little as one client does.
 *
 * *Details* The row is the first request's, its id included. What the others differ in is written `*`; the latency is
 * the longest. A row that cannot be queued is counted on, and offered again a second later.
 */
import { Effect, type Scope } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { auditRow, type AuditRow } from "./rows.ts"

export interface Tally {
  /** Counts a refusal; never waits and never fails. */
  add(record: AuditRecord): Effect.Effect<void>
}

const everyMs = 1000
/** Rows that are being counted at a time. When there are as many, they are written before the second is over. */
const mostRows = 1000
const several = "*"
/** What requests of one row may differ in. */
const own = ["method", "endpoint", "model", "client_ip", "client_request_id"] as const

const sameRow = ({ error_type, key_id, status }: AuditRow): string => `${key_id} ${status} ${error_type}`

const include = (row: AuditRow, other: AuditRow): void => {
  row.repeats += other.repeats
  row.latency_ms = Math.max(row.latency_ms, other.latency_ms)
  for (const field of own) if (row[field] !== other[field]) row[field] = several
}

/** `offer` queues a row and answers whether there was room. What is counted when the scope closes is offered then. */
export const makeTally = Effect.fnUntraced(function* (
  offer: (row: AuditRow) => Effect.Effect<boolean>
): Effect.fn.Return<Tally, never, Scope.Scope> {
  const scope = yield* Effect.scope
  let rows = new Map<string, AuditRow>()
  let timed = false

  const count = (row: AuditRow): void => {
    const name = sameRow(row)
    const known = rows.get(name)
    if (known === undefined) rows.set(name, row)
    else include(known, row)
  }

  const flush: Effect.Effect<void> = Effect.suspend(() => {
    const due = [...rows.values()]
    rows = new Map()
    return Effect.forEach(
      due,
      (row) =>
        Effect.map(offer(row), (queued) => {
          if (!queued) count(row)
        }),
      { discard: true }
    )
  }).pipe(Effect.uninterruptible)

  /** One at a time; it ends when a second has brought nothing. */
  const everySecond: Effect.Effect<void> = Effect.gen(function* () {
    while (rows.size > 0) {
      yield* Effect.sleep(everyMs)
      yield* flush
    }
    timed = false
  }).pipe(
    // Whatever broke it, the next refusal starts another.
    Effect.onError(() => Effect.sync(() => void (timed = false)))
  )

  yield* Effect.addFinalizer(() => flush)

  return {
    add: (record) =>
      Effect.suspend(() => {
        count(auditRow(record))
        if (rows.size >= mostRows) return flush
        if (timed) return Effect.void
        timed = true
        return Effect.asVoid(Effect.forkIn(everySecond, scope))
      })
  }
})
