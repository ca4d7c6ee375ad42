/**
 * Ends the requests of processes that died. The first replica that finds an intent with an expired lease closes it as
 * aborted, with the tokens of its last heartbeat.
 *
 * The counters still hold the tokens of such a request. Its account is compared with the ledger soon, and that gives the tokens
 * back (`expiredHolds.ts`). If this process dies in between, the next request of the account makes the same comparison.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Data, Effect, Layer, Schema } from "effect"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { background, jittered } from "../observability/background.ts"
import { isExpired } from "../audit/statements.ts"
import { endEach, readExpired } from "./deadRequests.ts"
import { Metrics } from "../observability/Metrics.ts"
import { Reconciler } from "../gates/limits/Reconciler.ts"

/** Number of requests remembered as stuck; further ones are tried with the others. */
const maxStuck = 1000
/** Number of stuck requests that one round tries, each alone, and that one round logs. */
const stuckTries = 20
const stuckLines = 10

export interface CrashRecoveryOptions {
  /** `CONCURRENCY_LEASE_S`; heartbeats come three times in a lease */
  readonly leaseS: number
  /** seconds between two rounds; default a sixth of the lease, at most 5 */
  readonly everyS?: number
}

/** Requests could not be closed in this round. */
class NotClosed extends Data.TaggedError("NotClosed")<{ readonly requests: number }> {}

const Probe = Schema.Tuple([Schema.Struct({ at: Schema.Finite, stuck: Schema.Finite })])
const decodeProbe = Schema.decodeUnknownEffect(Probe)

const make = (options: CrashRecoveryOptions) =>
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const metrics = yield* Metrics
    const reconciler = yield* Reconciler
    const nowMs = yield* makeMonotonicMs
    const everyMs = (options.everyS ?? Math.min(5, options.leaseS / 6)) * 1000
    const graceMs = (options.leaseS * 1000) / 3

    /** ids of requests that could not be closed, in the order in which they are tried again */
    const stuck = new Set<string>()
    let stuckIntents = 0
    yield* metrics.probe({
      name: "tollgate_intents_stuck",
      help: "Requests of dead processes that could not be closed within a lease",
      read: Effect.sync(() => stuckIntents)
    })

    /**
     * Returns how many requests it ended. A request that cannot be closed does not block the others: it is tried again, it is logged once
     * with its id, and `tollgate_intents_stuck` counts it.
     */
    const endAll = Effect.gen(function* () {
      const again = [...stuck].slice(0, stuckTries)
      const ids = [...again, ...(yield* readExpired(pg, [...stuck]))]
      const { ended, stuck: left } = yield* endEach(pg, ids, reconciler.compareSoon)
      const found = left.filter(({ request_id }) => !stuck.has(request_id))
      for (const id of again) stuck.delete(id)
      for (const { request_id } of left) if (stuck.size < maxStuck) stuck.add(request_id)
      for (const one of found.slice(0, stuckLines))
        yield* Effect.logWarning("aborted request cannot be closed", one)
      if (found.length > stuckLines) {
        yield* Effect.logWarning("more aborted requests cannot be closed", {
          requests: found.length - stuckLines
        })
      }
      return ended
    })

    let last: { readonly now: number; readonly at: number } | undefined
    let trustedSince = 0
    /**
     * Whether an expired lease means that its process died. Leases of living processes expire too: while the database does not answer,
     * when its clock is set, and while this process is paused. After each of these, every process gets the time of one heartbeat.
     */
    const trusted = (at: number): boolean => {
      const now = nowMs()
      const passed = last === undefined ? Number.NaN : now - last.now
      const steady = last !== undefined && Math.abs(at - last.at - passed) < graceMs / 2
      // A round comes about every everyMs. A longer gap means that this process was paused.
      if (!steady || passed > 1.2 * everyMs + graceMs) trustedSince = now
      last = { now, at }
      return now - trustedSince >= graceMs
    }

    const round = Effect.gen(function* () {
      const [{ at, stuck: found }] = yield* Effect.flatMap(
        timeoutDetached("1 second")(pg`
          SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS at,
            (SELECT count(*) FROM intents WHERE ${isExpired(pg, options.leaseS)})::float8 AS stuck`),
        decodeProbe
      )
      stuckIntents = found
      if (!trusted(at)) return 0
      const closed = yield* endAll
      if (closed > 0) yield* Effect.logWarning("aborted requests closed", { requests: closed })
      return stuck.size
    }).pipe(
      Effect.tapCause(() =>
        Effect.sync(() => {
          last = undefined
          stuckIntents = Number.NaN
        })
      ),
      Effect.flatMap((requests) => (requests === 0 ? Effect.void : Effect.fail(new NotClosed({ requests }))))
    )
    yield* background("crash_recovery", round, jittered(everyMs))
  })

export const layerCrashRecovery = (
  options: CrashRecoveryOptions
): Layer.Layer<never, never, PgClient.PgClient | Reconciler | Metrics> => Layer.effectDiscard(make(options))
