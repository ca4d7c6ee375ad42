/** The running processes of the gateway, and the last report of each, in a table of the database. For `tollgate status`. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Schema } from "effect"
import { makeRowReader } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"
import { randomUUID } from "node:crypto"
import { background, jittered } from "../observability/background.ts"
import { Metrics } from "../observability/Metrics.ts"
import { version } from "../version.ts"

/** All times are the database's. */
const Replica = Schema.Struct({
  /** random, new at each start */
  id: Schema.String,
  host: Schema.String,
  version: Schema.String,
  started: Schema.Date,
  /** seconds since then */
  upS: Schema.Finite,
  /** seconds since its last report */
  silentS: Schema.Finite,
  /** values by name; a gauge with labels has one entry for each, as `name{value}`; null: no finite value */
  gauges: Schema.Record(Schema.String, Schema.NullOr(Schema.Finite))
})
export type Replica = typeof Replica.Type

/** A process reports this often, in seconds. */
export const reportEveryS = 5
/** After this many seconds without a report a process counts as gone. */
export const goneAfterS = 3 * reportEveryS
/** The row of a process that ended without a word is deleted after this many seconds. */
export const forgetAfterS = 3600

const replicas = makeRowReader(({ id }) => `replica ${String(id)}`, Replica)

const make = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const bounded = timeoutDetached("2 seconds")
  return {
    /** Writes the row of a process. It also deletes rows of processes that have been silent for `forgetAfterS`. */
    report: ({ gauges, host, id, version }: Pick<Replica, "id" | "host" | "version" | "gauges">) =>
      Effect.asVoid(
        bounded(pg`
          WITH forgotten AS (
            DELETE FROM replicas
            WHERE seen_at < now() - make_interval(secs => ${forgetAfterS}) AND id <> ${id}::text::uuid
          )
          INSERT INTO replicas (id, host, version, gauges)
          VALUES (${id}::text::uuid, ${host}, ${version}, ${pg.json(gauges)})
          ON CONFLICT (id) DO UPDATE SET seen_at = now(), gauges = excluded.gauges`)
      ),
    /** Deletes the row of a process that ends. */
    leave: (id: string) => Effect.asVoid(bounded(pg`DELETE FROM replicas WHERE id = ${id}::text::uuid`)),
    /** All rows, the oldest process first. */
    list: bounded(
      replicas.all(pg`
          SELECT id::text, host, version, started_at AS started, gauges,
            extract(epoch FROM clock_timestamp() - started_at)::float8 AS "upS",
            extract(epoch FROM clock_timestamp() - seen_at)::float8 AS "silentS"
          FROM replicas ORDER BY started_at, id`)
    )
  }
})

export class Replicas extends Context.Service<Replicas>()("tollgate/replicas/Replicas", { make }) {}

export const layerPostgres: Layer.Layer<Replicas, never, PgClient.PgClient> = Layer.effect(Replicas, make)

/** What `tollgate status` shows of a process. */
const reported = [
  "tollgate_ready",
  "tollgate_breaker_state",
  "tollgate_breaker_open_keys",
  "tollgate_discovery_age_seconds",
  "tollgate_discovery_models",
  "tollgate_open_leases",
  "tollgate_queue_depth",
  "tollgate_queue_places_in_use",
  "tollgate_queue_model_loaded",
  "tollgate_queue_model_waiting",
  "tollgate_audit_backlog",
  "tollgate_memory_bytes",
  "tollgate_memory_max_bytes"
]

/** So many reports after the start come every second. */
const firstReports = 10

/** `host`: the name of the machine, container or pod */
export const layerHeartbeat = ({
  host
}: {
  readonly host: string
}): Layer.Layer<never, never, Replicas | Metrics> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const id = randomUUID()
      const metrics = yield* Metrics
      const replicas = yield* Replicas
      const report = Effect.flatMap(metrics.gauges(reported), (gauges) =>
        replicas.report({ id, host, version, gauges })
      )
      // Added before the loop, so that it runs after the loop has ended.
      yield* Effect.addFinalizer(() =>
        Effect.catch(replicas.leave(id), (cause) =>
          Effect.logDebug("the state of this process stays in the database for an hour", cause)
        )
      )
      const usual = jittered(reportEveryS * 1000)
      let reports = 0
      yield* background("replica_report", report, {
        ...usual,
        // A process that has just started changes: its list of models comes a moment later.
        pause: (failed) => {
          reports += 1
          return reports <= firstReports ? Effect.sleep("1 second") : usual.pause(failed)
        }
      })
    })
  )
