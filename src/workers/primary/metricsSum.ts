/**
 * The metrics of all workers as one text. Each figure is joined by the rule that it was declared with
 * (`observability/Metrics.ts`). What a worker had counted when it ended stays in the sum, so no counter goes down.
 */
import { AggregatorRegistry, collectDefaultMetrics, type Counter, Registry } from "prom-client"
import { Effect, Schema } from "effect"
import { makeWorkerDeaths } from "../../observability/Metrics.ts"
import { type Snapshot, toWorker } from "../protocol.ts"

const decode = Schema.decodeUnknownEffect(toWorker.snapshot.output)
const read = (registry: Registry): Effect.Effect<Snapshot> =>
  Effect.orDie(
    Effect.flatMap(
      Effect.promise(() => registry.getMetricsAsJSON()),
      decode
    )
  )

/** A figure that only grows. */
const isCumulative = ({ type }: Snapshot[number]): boolean => type === "counter" || type === "histogram"

/** Of the primary's own process: what it uses. Its event loop and heap say nothing about requests. */
const isOfProcess = ({ name }: { readonly name: string }): boolean =>
  name.startsWith("process_") || name.startsWith("tollgate_")

/** prom-client takes the mean of the workers' delays. The slowest worker is what a client may meet. */
const worstLag = (metric: Snapshot[number]): Snapshot[number] =>
  metric.name.startsWith("nodejs_eventloop_lag_") && metric.aggregator === "average"
    ? { ...metric, aggregator: "max" }
    : metric

const join = (snapshots: ReadonlyArray<Snapshot>): Registry =>
  AggregatorRegistry.aggregate(snapshots.map((snapshot) => snapshot.map(worstLag)))

/** `W` names a worker. */
export class MetricsSum<W> {
  readonly #own = new Registry()
  readonly #deaths: Counter
  readonly #latest = new Map<W, Snapshot>()
  #ended: ReadonlyArray<Snapshot> = []
  #compacting = false

  constructor() {
    collectDefaultMetrics({ register: this.#own })
    this.#deaths = makeWorkerDeaths(this.#own)
  }

  died(): void {
    this.#deaths.inc()
  }

  /** The latest figures of a worker. */
  update(worker: W, snapshot: Snapshot): void {
    this.#latest.set(worker, snapshot)
  }

  /** The worker has ended. What it had counted is kept. */
  retire(worker: W): Effect.Effect<void> {
    return Effect.suspend(() => {
      const last = this.#latest.get(worker)
      this.#latest.delete(worker)
      if (last === undefined) return Effect.void
      // Two workers may end at the same time, so what they had counted is joined when it is read.
      this.#ended = [...this.#ended, last.filter(isCumulative)]
      return this.#compact
    })
  }

  /** Prometheus text exposition format 0.0.4. */
  readonly exposition: Effect.Effect<string> = Effect.flatMap(
    Effect.suspend(() => read(this.#own)),
    (own) =>
      Effect.promise(() =>
        join([...this.#latest.values(), own.filter(isOfProcess), ...this.#ended]).metrics()
      )
  )

  /** Joins the figures of all that have ended, so that they do not take more memory with each one. One run at a time. */
  readonly #compact: Effect.Effect<void> = Effect.suspend(() => {
    if (this.#compacting) return Effect.void
    this.#compacting = true
    // Until they are joined, the parts count.
    const parts = [...this.#ended]
    return Effect.map(read(join(parts)), (joined) => {
      this.#ended = [joined, ...this.#ended.slice(parts.length)]
      this.#compacting = false
    })
  })
}
