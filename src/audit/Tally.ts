/**
 * Counts refusals instead of writing each: one row a second for each sender and kind of refusal, with the number of
 * requests in `repeats`. A flood of refusals then costs the database no more than one client does.
 *
 * The row is the one of the first request, with its id. A column in which the others differ becomes `*`; the latency is
 * the longest. A row that cannot be queued keeps counting, and is offered again a second later.
 */
import { Effect, type Scope } from "effect"
import { untraced } from "../observability/Trace.ts"
import { TimeZone } from "../domain/Calendar.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { auditRow, type AuditRow } from "./rows.ts"

export interface Tally {
  /** Counts a refusal. Never waits, never fails. */
  add(record: AuditRecord): Effect.Effect<void>
}

const everyMs = 1000
/** Number of rows that count at a time. When it is reached, all rows are written before the second is over. */
const maxRows = 1000
const several = "*"
/** The columns in which requests of one row may differ. */
const variableColumns = [
  "method",
  "endpoint",
  "model",
  "client_ip",
  "client_request_id",
  "end_user",
  "detail"
] as const

const sameRow = ({ error_type, key_id, status }: AuditRow): string => `${key_id} ${status} ${error_type}`

const include = (row: AuditRow, other: AuditRow): void => {
  row.repeats += other.repeats
  row.latency_ms = Math.max(row.latency_ms, other.latency_ms)
  for (const field of variableColumns) if (row[field] !== other[field]) row[field] = several
}

/** `offer` queues a row and returns whether there was room. Rows that are left when the scope closes are offered then. */
export const makeTally = Effect.fnUntraced(function* (
  offer: (row: AuditRow) => Effect.Effect<boolean>
): Effect.fn.Return<Tally, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const calendar = yield* TimeZone
  let rows = new Map<string, AuditRow>()
  let timed = false

  const count = (row: AuditRow): void => {
    const name = sameRow(row)
    const counted = rows.get(name)
    if (counted === undefined) rows.set(name, row)
    else include(counted, row)
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

  /** Runs once at a time. Ends after a second without refusals. */
  const everySecond: Effect.Effect<void> = Effect.gen(function* () {
    while (rows.size > 0) {
      yield* Effect.sleep(everyMs)
      yield* flush
    }
    timed = false
  }).pipe(
    // After a defect the next refusal starts a new loop.
    Effect.onError(() => Effect.sync(() => void (timed = false))),
    untraced
  )

  yield* Effect.addFinalizer(() => flush)

  return {
    add: (record) =>
      Effect.suspend(() => {
        count(auditRow(record, calendar))
        if (rows.size >= maxRows) return flush
        if (timed) return Effect.void
        timed = true
        return Effect.asVoid(Effect.forkIn(everySecond, scope))
      })
  }
})
