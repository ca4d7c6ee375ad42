/** Reports the state of this process every few seconds. A file of its own, because commands need no metrics. */
import { Effect, Layer } from "effect"
import { background, jittered } from "../observability/background.ts"
import { Metrics } from "../observability/Metrics.ts"
import { version } from "../version.ts"
import { Replicas, reportEveryS } from "./Replicas.ts"

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

/** `id`: of this process; `host`: the name of the machine, container or pod */
export const layerHeartbeat = ({
  host,
  id
}: {
  readonly host: string
  readonly id: string
}): Layer.Layer<never, never, Replicas | Metrics> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
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
