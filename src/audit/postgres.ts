/**
 * The audit and the ledger on Postgres.
 *
 * Intents, completions, refusals of known callers and anonymous refusals each have a queue with its own bound, so that no
 * kind of row delays another. Completions and refusals that cannot be written stay queued. While a completion is late no
 * request is admitted, so the number of queued completions is bounded by the number of open requests.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Cause, Effect, Exit, Layer, Predicate, Schedule, Schema } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import { TimeZone } from "../domain/Calendar.ts"
import { Unavailable } from "../domain/Errors.ts"
import { seal } from "../domain/Evidence.ts"
import { noUsage } from "../domain/Usage.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"
import { background, later, makeOutage, spaced } from "../observability/background.ts"
import { Audit } from "./Audit.ts"
import { type GroupCommit, type GroupCommitOptions, makeGroupCommit } from "./GroupCommit.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { chargeCorrection, correctAudit } from "./corrections.ts"
import { Reconciler } from "../gates/limits/Reconciler.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import {
  auditRow,
  type AuditRow,
  completionRow,
  type IntentRow,
  intentRow,
  type Progress,
  recordAs503,
  progressRow
} from "./rows.ts"
import { makeTally } from "./Tally.ts"
import { insertIntents, renewIntents, writeRows } from "./statements.ts"

export interface AuditOptions {
  /** `CONCURRENCY_LEASE_S`: how long an intent outlives its process */
  readonly leaseS: number
  /** how long a request waits for its intent; default 1500 */
  readonly openTimeoutMs?: number
  /** how long the end of an answer waits for its row; default 5000 */
  readonly closeTimeoutMs?: number
  /** how long a refusal waits for its row; default 1000 */
  readonly refuseTimeoutMs?: number
  /** while a completion waits longer than this, no request is admitted; default 2000 */
  readonly lateAfterMs?: number
  /** how long a shutdown waits for unwritten rows; default 5000 */
  readonly drainMs?: number
  /** refusals of known callers that may wait to be written; default 20,000 */
  readonly refusedCapacity?: number
  /** refusals of unknown callers that may wait to be written; default 5000 */
  readonly anonymousCapacity?: number
}

const maxBatch = 500
const admittedCapacity = 50_000

interface OpenRequest {
  /** written again when the database has lost it */
  readonly intent: IntentRow
  /** what it has used so far */
  progress: Progress
  /** whether its completion is being written */
  ended: boolean
}

type WriteError = SqlError | Schema.SchemaError | Cause.TimeoutError

/** SQLSTATE classes 22, 23 and 54: the row is at fault, not the database. */
export const poisoned = (error: WriteError): boolean => {
  if (error._tag !== "SqlError") return false
  const reason = error.reason
  if (reason._tag === "ConstraintError" || reason._tag === "UniqueViolation") return true
  // The driver cannot write a value.
  if (reason.message?.startsWith("PgConnection: Failed to encode") === true) return true
  return Predicate.hasProperty(reason.cause, "code") && /^(?:22|23|54)/.test(String(reason.cause.code))
}

const unavailable = (cause: unknown): Unavailable => new Unavailable({ gate: "Audit", retryAfterS: 1, cause })

const make = (options: AuditOptions) =>
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const calendar = yield* TimeZone
    const metrics = yield* Metrics
    const meter = yield* Meter
    const reconciler = yield* Reconciler
    const {
      closeTimeoutMs = 5000,
      lateAfterMs = 2000,
      openTimeoutMs = 1500,
      refuseTimeoutMs = 1000
    } = options
    const leaseMs = options.leaseS * 1000
    /** The open requests. The heartbeat renews their intents until they are closed. */
    const open = new Map<string, OpenRequest>()

    const lane = Effect.fnUntraced(function* <A extends { readonly request_id: string }>(
      task: BackgroundTask,
      write: (rows: ReadonlyArray<A>) => Effect.Effect<void, SqlError | Schema.SchemaError>,
      onStoreFailure: "fail" | "keep",
      capacity: number,
      lateAfterMs: number,
      more: Pick<GroupCommitOptions<A, WriteError>, "writers" | "settled" | "late"> = {}
    ) {
      const outage = yield* makeOutage(task)
      /** Postgres quotes the whole row in its detail, so only the name of the reason is logged. */
      const poisonedRow = (row: A, error: WriteError) =>
        Effect.andThen(
          metrics.backgroundFailed(task),
          Effect.logError("audit row cannot be written", {
            request_id: row.request_id,
            reason: error._tag === "SqlError" ? error.reason._tag : error._tag
          })
        )
      const inTime = timeoutDetached("3 seconds")
      return yield* makeGroupCommit<A, WriteError>({
        write: (rows) =>
          inTime(write(rows)).pipe(
            Effect.tapError((error) => {
              if (!poisoned(error)) return outage.failed(Cause.fail(error))
              const [row] = rows
              // Several rows are written one by one next, which shows the bad one.
              return row === undefined || rows.length > 1 ? Effect.void : poisonedRow(row, error)
            }),
            Effect.tap(outage.over)
          ),
        poisoned,
        onStoreFailure,
        maxBatch,
        capacity,
        lateAfterMs,
        ...more
      })
    })
    // Two writers, because requests wait for their intents. Completions have one: two batches would wait for each other's
    // ledger rows.
    const opening = yield* lane(
      "audit_intents",
      insertIntents(pg, options.leaseS),
      "fail",
      admittedCapacity,
      openTimeoutMs,
      { writers: 2 }
    )
    /** Corrects the rows of `rows` that were already in the log: sent twice, late, or closed by another replica. */
    const correct = Effect.fnUntraced(function* (
      rows: ReadonlyArray<AuditRow>,
      logged: ReadonlyArray<string>
    ) {
      if (logged.length === 0) return
      const ids = new Set(logged)
      const late = yield* correctAudit(pg)(rows.filter(({ request_id }) => ids.has(request_id)))
      const requests = late.filter(({ was_aborted }) => was_aborted).length
      if (requests > 0)
        yield* Effect.logWarning("requests were already closed by another replica", { requests })
      yield* Effect.forEach(late, (one) => chargeCorrection(meter, reconciler, one), {
        concurrency: 8,
        discard: true
      })
    })
    const write = (rows: ReadonlyArray<AuditRow>) =>
      Effect.flatMap(writeRows(pg)(rows), (logged) => correct(rows, logged))
    const rowLane = Effect.fnUntraced(function* (
      task: BackgroundTask,
      capacity: number,
      lateAfterMs: number,
      settled: (row: AuditRow) => void = () => undefined
    ) {
      /**
       * The client gets a 503, and its row records that. When the database may already have the row as an answer, the row is sent
       * again: it is then corrected.
       */
      const late = (row: AuditRow, isBeingWritten: boolean) =>
        recordAs503(row) && isBeingWritten && Exit.isFailure(rows.offer({ ...row }))
          ? Effect.logWarning("audit row of a late answer not corrected", { request_id: row.request_id })
          : Effect.void
      const rows: GroupCommit<AuditRow, WriteError> = yield* lane(
        task,
        write,
        "keep",
        capacity,
        lateAfterMs,
        {
          settled,
          late
        }
      )
      return rows
    })
    // Unbounded here: only open requests are closed, and admission bounds those.
    const unbounded = Number.POSITIVE_INFINITY
    const closing = yield* rowLane(
      "audit_completions",
      unbounded,
      closeTimeoutMs,
      ({ request_id }) => void open.delete(request_id)
    )
    const refusing = yield* rowLane("audit_refusals", options.refusedCapacity ?? 20_000, refuseTimeoutMs)
    const refusingAnonymous = yield* rowLane(
      "audit_anonymous_refusals",
      options.anonymousCapacity ?? 5000,
      refuseTimeoutMs
    )
    const lanes = [opening, closing, refusing, refusingAnonymous]
    yield* Effect.addFinalizer(() =>
      Effect.forEach(lanes, (lane) => lane.close(options.drainMs ?? 5000), { concurrency: "unbounded" }).pipe(
        Effect.map((lost) => lost.reduce((sum, count) => sum + count, 0)),
        Effect.tap((lost) =>
          lost === 0 ? Effect.void : Effect.logError("audit rows lost at shutdown", { rows: lost })
        )
      )
    )

    yield* metrics.probe({
      name: "tollgate_audit_backlog",
      help: "Audit rows that are not durable yet",
      read: Effect.sync(() => lanes.reduce((sum, lane) => sum + lane.backlog(), 0))
    })
    yield* metrics.probe({
      name: "tollgate_audit_lag_seconds",
      help: "How long the oldest completion that is not durable yet has waited",
      read: Effect.sync(() => closing.lagMs() / 1000)
    })
    yield* metrics.probe({
      name: "tollgate_open_leases",
      help: "Requests of this process that are under way",
      read: Effect.sync(() => open.size)
    })

    const renewal = yield* makeOutage("intent_renewal")
    const renewThese = (ids: ReadonlyArray<string>) =>
      renewIntents(
        pg,
        options.leaseS
      )(
        ids.flatMap((id) => {
          const request = open.get(id)
          return request === undefined ? [] : [progressRow(id, request.progress)]
        })
      )
    /**
     * Writes the intents of running requests again that a crash of Postgres lost. A completion that is written at the same
     * moment may leave such an intent behind; crash recovery then deletes it when its lease ends, and charges nothing twice.
     */
    const restore = Effect.fnUntraced(function* (lost: ReadonlyArray<string>) {
      const running = lost.filter((id) => open.get(id)?.ended === false)
      if (running.length === 0) return
      yield* Effect.logWarning("intents lost by the database are written again", { requests: running.length })
      yield* insertIntents(
        pg,
        options.leaseS
      )(
        running.flatMap((id) => {
          const request = open.get(id)
          return request === undefined ? [] : [request.intent]
        })
      )
      yield* renewThese(running)
    })
    const renew = Effect.suspend(() =>
      open.size === 0
        ? Effect.void
        : timeoutDetached(Math.min(5000, leaseMs / 6))(Effect.flatMap(renewThese([...open.keys()]), restore))
    ).pipe(
      Effect.tapError((cause) => renewal.failed(Cause.fail(cause))),
      // Retry soon: other replicas take a process with an expired lease for dead.
      Effect.retry(Schedule.spaced(Math.min(1000, leaseMs / 12)))
    )
    yield* background("intent_renewal", renew, later(spaced(leaseMs / 3)), renewal)

    const dropped = new OutageLog(yield* makeMonotonicMs, { remindMs: 1000 })
    const suppressed = dropped.failed((refusals) =>
      Effect.logWarning("audit rows of refusals dropped, queue full", { refusals })
    )

    const laneOf = (row: AuditRow) => (row.key_id === null ? refusingAnonymous : refusing)

    const tally = yield* makeTally((row) =>
      Effect.match(laneOf(row).offer(row), { onFailure: () => false, onSuccess: () => true })
    )

    return Audit.of({
      open: (queued) =>
        Effect.suspend(() => {
          if (closing.lagMs() > lateAfterMs) return unavailable("completions are late")
          const intent = intentRow(queued.facts, calendar)
          return Effect.matchCauseEffect(opening.submit(intent), {
            onFailure: (cause) => Effect.failCause(Cause.map(cause, unavailable)),
            onSuccess: () => {
              const progress = { ...noUsage, tokensIn: intent.tokens_in, held: intent.held }
              open.set(intent.request_id, { intent, progress, ended: false })
              return Effect.succeed(seal.Audit(queued, {}))
            }
          })
        }),
      progress: (requestId, usage, held = 0) => {
        const request = open.get(requestId)
        if (request !== undefined) request.progress = { ...usage, held }
      },
      close: (record) => {
        const request = open.get(record.arrival.requestId)
        // If this process dies before the row is written, the intent has the same figures.
        if (request !== undefined) {
          request.progress = { ...record.usage, held: 0 }
          request.ended = true
        }
        const row = completionRow(record, calendar, request?.intent.admitted_at)
        return Effect.flatten(closing.offer(row)).pipe(Effect.mapError(unavailable))
      },
      refuse: (record) => {
        // The intent may be written although its client did not wait for it. The statement of the row deletes it.
        open.delete(record.arrival.requestId)
        const row = auditRow(record, calendar)
        const lane = laneOf(row)
        return Effect.flatten(lane.offer(row)).pipe(
          Effect.catchTags({
            QueueFull: (full) => Effect.andThen(suppressed, full),
            // A refusal may go out before its row is durable. An answer may not.
            Late: (late) => (record.status < 400 ? late : Effect.void)
          }),
          Effect.mapError(unavailable)
        )
      },
      tally: tally.add
    })
  })

export const layerPostgres = (
  options: AuditOptions
): Layer.Layer<Audit, never, PgClient.PgClient | Meter | Reconciler | Metrics> =>
  Layer.effect(Audit, make(options))
