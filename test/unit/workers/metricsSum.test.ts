/** The metrics of several workers as one. */
import { assert, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { layer as layerMetrics, Metrics } from "../../../src/observability/Metrics.ts"
import { MetricsSum } from "../../../src/workers/primary/metricsSum.ts"
import { type Snapshot, toWorker } from "../../../src/workers/protocol.ts"

const decode = Schema.decodeUnknownEffect(toWorker.snapshot.output)

/** The metrics of a worker: a probe of each rule has the value `n`, and so many prompts were dropped. */
const snapshotOf = (n: number) =>
  Effect.gen(function* () {
    const metrics = yield* Metrics
    for (const workers of ["total", "sum", "max", "min"] as const) {
      yield* metrics.probe({ name: `test_${workers}`, help: "h", workers, read: Effect.succeed(n) })
    }
    yield* metrics.promptsDropped(n)
    metrics.firstFrame(n, "m")
    return yield* Effect.flatMap(metrics.snapshot, decode)
  }).pipe(Effect.provide(layerMetrics))

const figuresOf = (text: string) => (name: string) =>
  Number(new RegExp(`^${name}(?:{[^}]*})? (\\S+)$`, "m").exec(text)?.[1])

const readAll = (sum: MetricsSum<string>) => Effect.map(sum.exposition, figuresOf)

it.effect("when workers are added up, then each figure follows the rule that it was declared with", () =>
  Effect.gen(function* () {
    const sum = new MetricsSum<string>()
    sum.update("a", yield* snapshotOf(3))
    sum.update("b", yield* snapshotOf(5))
    const figure = yield* readAll(sum)
    assert.deepStrictEqual(
      [
        "test_total",
        "test_sum",
        "test_max",
        "test_min",
        "tollgate_prompt_log_dropped_total",
        "tollgate_workers"
      ].map(figure),
      [8, 8, 5, 3, 8, 2]
    )
    assert.strictEqual(figure("tollgate_backend_first_frame_seconds_count"), 2)
  })
)

it.effect("when workers end, then what they had counted stays, and what they had at the time goes", () =>
  Effect.gen(function* () {
    const sum = new MetricsSum<string>()
    sum.update("a", yield* snapshotOf(3))
    sum.update("b", yield* snapshotOf(5))
    sum.update("c", yield* snapshotOf(7))
    yield* Effect.all([sum.retire("a"), sum.retire("b"), sum.retire("nobody")], { concurrency: "unbounded" })
    sum.died()
    const figure = yield* readAll(sum)
    assert.deepStrictEqual(
      [
        "test_total",
        "test_sum",
        "test_max",
        "test_min",
        "tollgate_prompt_log_dropped_total",
        "tollgate_worker_deaths_total"
      ].map(figure),
      [15, 7, 7, 7, 15, 1]
    )
    assert.strictEqual(figure("tollgate_backend_first_frame_seconds_count"), 3)
    assert.strictEqual(figure("tollgate_workers"), 1)
  })
)

it.effect("when an event loop is late in one worker, then the figure is that of the slowest", () =>
  Effect.gen(function* () {
    const late = (value: number): Snapshot => [
      {
        name: "nodejs_eventloop_lag_p99_seconds",
        help: "h",
        type: "gauge",
        aggregator: "average",
        values: [{ value, labels: {} }]
      }
    ]
    const sum = new MetricsSum<string>()
    sum.update("a", late(0.5))
    sum.update("b", late(0.01))
    assert.strictEqual((yield* readAll(sum))("nodejs_eventloop_lag_p99_seconds"), 0.5)
  })
)
