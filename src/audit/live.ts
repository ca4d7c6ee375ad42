/**
 * The audit and the ledger on Postgres.
 *
 * Three lanes of group commits, each with its own bound, so that none can starve another: what is admitted (intents
 * and their completions), refusals of known callers, refusals of nobody in particular. A completion that cannot be
 * written is kept and tried again until it is; while one is late nobody is admitted, so what is kept is bounded by
 * what was open.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { type Cause, Duration, Effect, Fiber, FiberSet, Layer, Predicate, Schedule, Schema } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import { Unavailable } from "../domain/Errors.ts"
import { evidence } from "../domain/Evidence.ts"
import { noUsage, type Usage } from "../domain/Usage.ts"
import { answerWithin } from "../infra/Deadline.ts"
import { Audit } from "./Audit.ts"
import { makeGroupCommit, type QueueFull } from "./GroupCommit.ts"
import { Ledger, LedgerDown } from "./Ledger.ts"
import { Metrics } from "./Metrics.ts"
import { type AuditRow, auditRow, intentRow, progressRow } from "./rows.ts"
import { closeIntents, insertAudit, insertIntents, renewIntents } from "./statements.ts"

export interface AuditOptions {
  /** `CONCURRENCY_LEASE_S`: how long an intent outlives its process */
  readonly leaseS: number
  /** how long a request waits for its intent; default 1500 */
  readonly openTimeoutMs?: number
  /** how long the end of an answer waits for its row; default 5000 */
  readonly closeTimeoutMs?: number
  /** how long a refusal waits for its row; default 1000 */
  readonly refuseTimeoutMs?: number
}

const maxBatch = 500
const admittedCapacity = 50_000
const refusedCapacity = 20_000
const anonymousCapacity = 5_000

type WriteError = SqlError | Cause.TimeoutError

/** Class 22 and 23 of SQLSTATE: the row is at fault, not the database. */
const poisoned = (error: WriteError): boolean => {
  if (error._tag !== "SqlError") return false
  const reason = error.reason
  if (reason._tag === "ConstraintError" || reason._tag === "UniqueViolation") return true
  return Predicate.hasProperty(reason.cause, "code") && String(reason.cause.code).startsWith("22")
}

const unavailable = (cause: unknown): Unavailable => new Unavailable({ gate: "Audit", retryAfterS: 1, cause })

/** Soon at first, then every two seconds, for as long as the process lives. */
const persistently = Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("2 seconds")])

const make = (options: AuditOptions) =>
  Effect.gen(function* () {
    const [pg, metrics] = [yield* PgClient.PgClient, yield* Metrics]
    const closeTimeoutMs = options.closeTimeoutMs ?? 5000
    const lane = <A>(write: (rows: ReadonlyArray<A>) => Effect.Effect<void, SqlError>, capacity: number) =>
      makeGroupCommit<A, WriteError>({
        write: (rows) => answerWithin("3 seconds")(write(rows)),
        poisoned,
        maxBatch,
        capacity
      })
    const opening = yield* lane(insertIntents(pg, options.leaseS), admittedCapacity)
    const closing = yield* lane(closeIntents(pg), admittedCapacity)
    const refusing = yield* lane(insertAudit(pg), refusedCapacity)
    const turningAway = yield* lane(insertAudit(pg), anonymousCapacity)
    const background = yield* FiberSet.make<void, WriteError | QueueFull>()
    yield* Effect.addFinalizer(() =>
      Effect.asVoid(FiberSet.awaitEmpty(background).pipe(Effect.timeoutOption(Duration.millis(closeTimeoutMs))))
    )
    const open = new Map<string, Usage>()
    let late = 0
    yield* metrics.probe({
      name: "tollgate_audit_backlog",
      help: "Audit rows that are not durable yet",
      read: Effect.sync(
        () => opening.backlog() + closing.backlog() + refusing.backlog() + turningAway.backlog() + late
      )
    })
    yield* metrics.probe({
      name: "tollgate_open_leases",
      help: "Requests of this process that are under way",
      read: Effect.sync(() => open.size)
    })

    /** Tries until it is written; only a row that nobody can write is given up, and loudly. */
    const persist = (submit: Effect.Effect<void, WriteError | QueueFull>, row: AuditRow) =>
      submit.pipe(
        Effect.retry({
          schedule: persistently,
          while: (error) => error._tag === "QueueFull" || !poisoned(error)
        }),
        Effect.tapError((error) => Effect.logError(`audit row ${row.request_id} cannot be written`, error))
      )

    /** In a fiber of its own, so that neither a client that leaves nor a wait that ends takes the row along. */
    const written = (submit: Effect.Effect<void, WriteError | QueueFull>, row: AuditRow) =>
      FiberSet.run(background, persist(submit, row), { startImmediately: true })

    const renew = Effect.suspend(() =>
      open.size === 0
        ? Effect.void
        : answerWithin("5 seconds")(
            renewIntents(pg, options.leaseS)([...open].map(([id, usage]) => progressRow(id, usage)))
          )
    ).pipe(Effect.catch((cause) => Effect.logWarning("the leases of open requests were not renewed", cause)))
    yield* renew.pipe(
      Effect.schedule(Schedule.spaced(Duration.millis((options.leaseS * 1000) / 3))),
      Effect.forkScoped
    )

    return Audit.of({
      open: Effect.fnUntraced(function* (intent) {
        if (late > 0) return yield* unavailable("completions are late")
        yield* opening.submit(intentRow(intent)).pipe(
          Effect.timeout(Duration.millis(options.openTimeoutMs ?? 1500)),
          Effect.mapError(unavailable)
        )
        const { requestId } = intent.arrival
        open.set(requestId, { ...noUsage, tokensIn: intent.promptEstimate })
        return evidence("Audit", { requestId })
      }),
      progress: (requestId, usage) =>
        Effect.sync(() => {
          if (open.has(requestId)) open.set(requestId, usage)
        }),
      close: Effect.fnUntraced(function* (record) {
        const row = auditRow(record)
        const fiber = yield* written(closing.submit(row), row)
        let waiting = true
        fiber.addObserver(() => {
          open.delete(row.request_id)
          if (!waiting) late -= 1
        })
        yield* Fiber.join(fiber).pipe(
          Effect.timeout(Duration.millis(closeTimeoutMs)),
          Effect.onError(() =>
            Effect.sync(() => {
              waiting = false
              if (fiber.pollUnsafe() === undefined) late += 1
            })
          ),
          Effect.mapError(unavailable)
        )
      }),
      refuse: Effect.fnUntraced(function* (record) {
        const row = auditRow(record)
        const lane = record.caller === undefined ? turningAway : refusing
        if (lane.backlog() >= (record.caller === undefined ? anonymousCapacity : refusedCapacity)) {
          return yield* unavailable("the queue of refusals is full")
        }
        const fiber = yield* written(lane.submit(row), row)
        // A refusal decides nothing that needs the row: it is on its way and will be written.
        yield* Fiber.join(fiber).pipe(
          Effect.timeoutOption(Duration.millis(options.refuseTimeoutMs ?? 1000)),
          Effect.mapError(unavailable)
        )
      })
    })
  })

const Spent = Schema.Struct({ day: Schema.Finite, month: Schema.Finite, total: Schema.Finite })
const decodeSpent = Schema.decodeUnknownEffect(Schema.Tuple([Spent]))

const makeLedger = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  return Ledger.of({
    spent: (keyId, at) => {
      const instant = new Date(at).toISOString()
      return answerWithin("1 second")(
        pg`
          WITH tokens AS (
            SELECT day, (tokens_in + tokens_out) AS n FROM ledger WHERE key_id = ${keyId}::text::uuid
            UNION ALL
            SELECT (admitted_at AT TIME ZONE 'UTC')::date, greatest(held, tokens_in + tokens_out)
            FROM intents WHERE key_id = ${keyId}::text::uuid
          ), at AS (SELECT (${instant}::text::timestamptz AT TIME ZONE 'UTC')::date AS day)
          SELECT
            coalesce(sum(n) FILTER (WHERE tokens.day = at.day), 0)::float8 AS day,
            coalesce(sum(n) FILTER (WHERE date_trunc('month', tokens.day) = date_trunc('month', at.day)), 0)::float8 AS month,
            coalesce(sum(n), 0)::float8 AS total
          FROM at LEFT JOIN tokens ON true`
      ).pipe(
        Effect.flatMap(decodeSpent),
        Effect.map(([spent]) => spent),
        Effect.mapError((cause) => new LedgerDown({ cause }))
      )
    }
  })
})

export const layerLive = (options: AuditOptions): Layer.Layer<Audit | Ledger, never, PgClient.PgClient | Metrics> =>
  Layer.merge(Layer.effect(Audit, make(options)), Layer.effect(Ledger, makeLedger))
