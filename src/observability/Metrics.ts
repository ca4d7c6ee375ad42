/**
 * The Prometheus metrics: requests, tokens and latency, labelled by tenant and model and never by key, and the gauges of
 * the alerts.
 *
 * A model becomes a label only when discovery knows it for that caller. Every other name is `none`, so made-up names make
 * no series.
 */
import { Context, Effect, Layer } from "effect"
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from "prom-client"
import { outcomes } from "../domain/Outcome.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"

/** A figure that is read when the metrics are scraped. */
export interface Probe {
  readonly name: string
  readonly help: string
  /** a counter only grows; default gauge */
  readonly type?: "gauge" | "counter"
  readonly read: Effect.Effect<number>
}

/** The same for several things: one gauge, with a value for each value of `label`. */
export interface LabelledProbe {
  readonly name: string
  readonly help: string
  readonly label: string
  readonly values: Readonly<Record<string, Effect.Effect<number>>>
}

/** One gauge with a value for each combination of labels. What is not read any more is not shown any more. */
export interface TableProbe<Label extends string> {
  readonly name: string
  readonly help: string
  readonly labels: ReadonlyArray<Label>
  readonly read: Effect.Effect<
    ReadonlyArray<{ readonly labels: Readonly<Record<Label, string>>; readonly value: number }>,
    unknown
  >
}

/** Why Node's parser or timers refused a request. */
export const malformedReasons = ["syntax", "size", "time", "tunnel", "expectation", "pipelined"] as const
export type MalformedReason = (typeof malformedReasons)[number]

/** The names of the background tasks. A new loop needs a new name (`observability/background.ts`). */
export const backgroundTasks = [
  "audit_intents",
  "audit_completions",
  "audit_refusals",
  "audit_anonymous_refusals",
  "audit_months",
  "audit_retention",
  "intent_renewal",
  "lease_renewal",
  "lease_reregistration",
  "crash_recovery",
  "counter_comparison",
  "suspect_counter_comparison",
  "tenant_counter_comparison",
  "settlement_retry",
  "model_discovery",
  "model_descriptions",
  "queue_beat",
  "key_refresh",
  "revocation_notifications",
  "prompt_log_writing",
  "prompt_log_retention",
  "replica_report"
] as const
export type BackgroundTask = (typeof backgroundTasks)[number]

export class Metrics extends Context.Service<
  Metrics,
  {
    /** Counts a finished request. `modelResolved`: whether its model may be a label. */
    observe(record: AuditRecord, modelResolved: boolean): Effect.Effect<void>
    /** Records that the backend's first frame came `ms` after the request arrived. `model`: a discovered name. */
    firstFrame(ms: number, model: string): Effect.Effect<void>
    /** Records that this process knew of a revocation `latencyMs` after it was written. */
    revoked(latencyMs: number): Effect.Effect<void>
    /** Counts transcripts of opted-in keys that could not be written. */
    promptsDropped(count: number): Effect.Effect<void>
    /** Counts a request that Node's parser or timers refused. It has no audit row. */
    malformed(reason: MalformedReason): Effect.Effect<void>
    /** Counts a failed run of a background task. */
    backgroundFailed(task: BackgroundTask): Effect.Effect<void>
    /** Wraps a wait for a place at the backend: counts who waits, how long, and who is refused. */
    queueing(
      tenant: string
    ): <A, E extends { readonly _tag: string }, R>(wait: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
    probe(probe: Probe): Effect.Effect<void>
    probes(probe: LabelledProbe): Effect.Effect<void>
    table<Label extends string>(probe: TableProbe<Label>): Effect.Effect<void>
    /** The values of some gauges, as `Replicas` stores them. */
    gauges(names: ReadonlyArray<string>): Effect.Effect<Readonly<Record<string, number | null>>>
    /** Prometheus text exposition format 0.0.4. */
    readonly exposition: Effect.Effect<string>
  }
>()("tollgate/observability/Metrics") {}

/** From a cache hit to a long answer of a slow model. */
const seconds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800]

/** A probe that fails or hangs gets a value that says so. The other metrics are still given. */
const inTime = <A>(read: Effect.Effect<A, unknown>, otherwise: A): Effect.Effect<A> =>
  read.pipe(
    Effect.timeoutOrElse({ duration: "1500 millis", orElse: () => Effect.succeed(otherwise) }),
    Effect.catchCause(() => Effect.succeed(otherwise))
  )
const known = (read: Effect.Effect<number>): Effect.Effect<number> => inTime(read, Number.NaN)

const make = Effect.sync(() => {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const requests = new Counter({
    name: "gateway_requests_total",
    help: "Requests, by tenant, model and status",
    labelNames: ["tenant", "model", "status"],
    registers
  })
  const tokens = new Counter({
    name: "gateway_tokens_total",
    help: "Tokens charged, by tenant, model and direction (in, out)",
    labelNames: ["tenant", "model", "direction"],
    registers
  })
  const cached = new Counter({
    name: "tollgate_tokens_cached_total",
    help: "Tokens of prompts that the backend had in its prefix cache, as far as it says so, by tenant and model; charged as the others",
    labelNames: ["tenant", "model"],
    registers
  })
  const refusals = new Counter({
    name: "tollgate_refusals_total",
    help: "Requests that ended with an error, by tenant and reason (the type of the error)",
    labelNames: ["tenant", "reason"],
    registers
  })
  const overflows = new Counter({
    name: "tollgate_prompt_overflow_total",
    help: "Prompts longer than the context window, by tenant, model and outcome (refused, truncated)",
    labelNames: ["tenant", "model", "outcome"],
    registers
  })
  const durations = new Histogram({
    name: "gateway_request_duration_seconds",
    help: "From the arrival of a request to its end",
    labelNames: ["tenant", "model"],
    buckets: seconds,
    registers
  })
  const firstFrames = new Histogram({
    name: "tollgate_backend_first_frame_seconds",
    help: "From the arrival of a request to the backend's first frame, by model",
    labelNames: ["model"],
    buckets: seconds,
    registers
  })
  const revocations = new Histogram({
    name: "tollgate_revocation_seconds",
    help: "From the writing of a revocation to this process forgetting the key",
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers
  })
  const dropped = new Counter({
    name: "tollgate_prompt_log_dropped_total",
    help: "Transcripts of opted-in keys that could not be written",
    registers
  })
  const malformed = new Counter({
    name: "tollgate_malformed_requests_total",
    help: "Requests refused before they were read: by syntax, size, time, tunnel or expectation",
    labelNames: ["reason"],
    registers
  })
  for (const reason of malformedReasons) malformed.inc({ reason }, 0)
  const failures = new Counter({
    name: "tollgate_background_failures_total",
    help: "Runs of background work that failed, by task",
    labelNames: ["task"],
    registers
  })
  for (const task of backgroundTasks) failures.inc({ task }, 0)
  const queueDepth = new Gauge({
    name: "tollgate_queue_depth",
    help: "Requests of this replica that wait for a place at the backend, by tenant",
    labelNames: ["tenant"],
    registers
  })
  const queueWaits = new Histogram({
    name: "tollgate_queue_wait_seconds",
    help: "How long requests waited for a place at the backend, by tenant; those that were refused or left too",
    labelNames: ["tenant"],
    buckets: seconds,
    registers
  })
  const queueRefusals = new Counter({
    name: "tollgate_queue_refused_total",
    help: "Requests refused because too many waited or the wait was too long, by tenant",
    labelNames: ["tenant"],
    registers
  })
  /** tenants and models with series of overflows, which start at 0 */
  const overflowing = new Set<string>()
  const startOverflows = (tenant: string, model: string): void => {
    const series = `${tenant} ${model}`
    if (overflowing.has(series)) return
    overflowing.add(series)
    for (const outcome of ["refused", "truncated"]) overflows.inc({ tenant, model, outcome }, 0)
  }
  return Metrics.of({
    observe: (record, modelResolved) =>
      Effect.sync(() => {
        const tenant = record.caller?.tenantName ?? "none"
        const model = modelResolved && record.model !== undefined ? record.model : "none"
        startOverflows(tenant, model)
        if (record.errorType === outcomes.contextExceeded.type)
          overflows.inc({ tenant, model, outcome: "refused" })
        if (record.truncated === true) overflows.inc({ tenant, model, outcome: "truncated" })
        requests.inc({ tenant, model, status: String(record.status) })
        if (record.errorType !== undefined) refusals.inc({ tenant, reason: record.errorType })
        durations.observe({ tenant, model }, record.latencyMs / 1000)
        if (record.usage.tokensIn > 0) {
          tokens.inc({ tenant, model, direction: "in" }, record.usage.tokensIn)
          // Also when it is not known: a series that is missing would look like one that is broken.
          cached.inc({ tenant, model }, record.usage.tokensCached ?? 0)
        }
        if (record.usage.tokensOut > 0)
          tokens.inc({ tenant, model, direction: "out" }, record.usage.tokensOut)
      }),
    firstFrame: (ms, model) => Effect.sync(() => firstFrames.observe({ model }, Math.max(0, ms) / 1000)),
    revoked: (latencyMs) => Effect.sync(() => revocations.observe(Math.max(0, latencyMs) / 1000)),
    promptsDropped: (count) => Effect.sync(() => dropped.inc(count)),
    malformed: (reason) => Effect.sync(() => malformed.inc({ reason })),
    backgroundFailed: (task) => Effect.sync(() => failures.inc({ task })),
    queueing: (tenant) => (wait) =>
      Effect.suspend(() => {
        queueDepth.inc({ tenant })
        queueRefusals.inc({ tenant }, 0)
        const stop = queueWaits.startTimer({ tenant })
        return wait.pipe(
          Effect.tapError((error) =>
            Effect.sync(() => {
              if (error._tag === "CapacityExceeded") queueRefusals.inc({ tenant })
            })
          ),
          Effect.ensuring(
            Effect.sync(() => {
              queueDepth.dec({ tenant })
              stop()
            })
          )
        )
      }),
    probe: ({ name, help, read, type }) =>
      Effect.map(Effect.context(), (context) => {
        const value = () => Effect.runPromiseWith(context)(known(read))
        if (type !== "counter") {
          const gauge: Gauge = new Gauge({
            name,
            help,
            registers,
            collect: () => value().then((figure) => gauge.set(figure))
          })
          return
        }
        const counter: Counter = new Counter({
          name,
          help,
          registers,
          collect: () =>
            value().then((figure) => {
              // A counter cannot be unknown. It keeps its last figure.
              if (!Number.isFinite(figure)) return
              counter.reset()
              counter.inc(figure)
            })
        })
      }),
    probes: ({ name, help, label, values }) =>
      Effect.map(Effect.context(), (context) => {
        const read = Effect.forEach(
          Object.entries(values),
          ([value, probe]) => Effect.map(known(probe), (figure) => [value, figure] as const),
          { concurrency: "unbounded" }
        )
        const gauge = new Gauge({
          name,
          help,
          labelNames: [label],
          registers,
          collect: () =>
            Effect.runPromiseWith(context)(read).then((figures) => {
              for (const [value, figure] of figures) gauge.set({ [label]: value }, figure)
            })
        })
      }),
    table: ({ name, help, labels, read }) =>
      Effect.map(Effect.context(), (context) => {
        const gauge = new Gauge({
          name,
          help,
          labelNames: labels,
          registers,
          collect: () =>
            Effect.runPromiseWith(context)(inTime(read, [])).then((rows) => {
              gauge.reset()
              for (const row of rows) gauge.set(row.labels, row.value)
            })
        })
      }),
    gauges: (names) =>
      Effect.map(
        Effect.promise(() => Promise.all(names.map((name) => registry.getSingleMetric(name)?.get()))),
        (found) =>
          Object.fromEntries(
            found.flatMap((metric) =>
              (metric?.values ?? []).map(({ labels, value }) => {
                const [label] = Object.values(labels)
                const name = label === undefined ? metric?.name : `${metric?.name}{${label}}`
                return [name, Number.isFinite(value) ? value : null] as const
              })
            )
          )
      ),
    exposition: Effect.promise(() => registry.metrics())
  })
})

export const layer: Layer.Layer<Metrics> = Layer.effect(Metrics, make)
