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
  /** With labels it has a row for each combination of their values. What is not read any more is not shown any more. */
  readonly labels?: ReadonlyArray<string>
  readonly read: Effect.Effect<number | ReadonlyArray<Row>, unknown>
}

interface Row {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
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
  "replica_report",
  "questions",
  "budget_comparison",
  "budget_warnings"
] as const
export type BackgroundTask = (typeof backgroundTasks)[number]

/** From a cache hit to a long answer of a slow model. */
const seconds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800]

const make = Effect.sync(() => {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const counter = (name: string, help: string, labelNames: ReadonlyArray<string> = []) =>
    new Counter({ name, help, labelNames, registers })
  const histogram = (name: string, help: string, labelNames: ReadonlyArray<string>, buckets = seconds) =>
    new Histogram({ name, help, labelNames, buckets, registers })
  const requests = counter("gateway_requests_total", "Requests, by tenant, model and status", [
    "tenant",
    "model",
    "status"
  ])
  const tokens = counter("gateway_tokens_total", "Tokens charged, by tenant, model and direction (in, out)", [
    "tenant",
    "model",
    "direction"
  ])
  const cached = counter(
    "tollgate_tokens_cached_total",
    "Tokens of prompts that the backend had in its prefix cache, as far as it says so, by tenant and model; charged as the others",
    ["tenant", "model"]
  )
  const refusals = counter(
    "tollgate_refusals_total",
    "Requests that ended with an error, by tenant and reason (the type of the error)",
    ["tenant", "reason"]
  )
  const overflows = counter(
    "tollgate_prompt_overflow_total",
    "Prompts longer than the context window, by tenant, model and outcome (refused, truncated)",
    ["tenant", "model", "outcome"]
  )
  const durations = histogram(
    "gateway_request_duration_seconds",
    "From the arrival of a request to its end",
    ["tenant", "model"]
  )
  const firstFrames = histogram(
    "tollgate_backend_first_frame_seconds",
    "From the arrival of a request to the backend's first frame, by model",
    ["model"]
  )
  const revocations = histogram(
    "tollgate_revocation_seconds",
    "From the writing of a revocation to this process forgetting the key",
    [],
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
  )
  const dropped = counter(
    "tollgate_prompt_log_dropped_total",
    "Transcripts of opted-in keys that could not be written"
  )
  const malformed = counter(
    "tollgate_malformed_requests_total",
    "Requests refused before they were read: by syntax, size, time, tunnel or expectation",
    ["reason"]
  )
  for (const reason of malformedReasons) malformed.inc({ reason }, 0)
  const failures = counter(
    "tollgate_background_failures_total",
    "Runs of background work that failed, by task",
    ["task"]
  )
  for (const task of backgroundTasks) failures.inc({ task }, 0)
  const queueDepth = new Gauge({
    name: "tollgate_queue_depth",
    help: "Requests of this replica that wait for a place at the backend, by tenant",
    labelNames: ["tenant"],
    registers
  })
  const queueWaits = histogram(
    "tollgate_queue_wait_seconds",
    "How long requests waited for a place at the backend, by tenant; those that were refused or left too",
    ["tenant"]
  )
  const loads = counter(
    "tollgate_model_loads_total",
    "Loads of models that requests with a place waited for, by model",
    ["model"]
  )
  const loadSeconds = counter("tollgate_model_load_seconds_total", "How long these loads took, by model", [
    "model"
  ])
  const queueRefusals = counter(
    "tollgate_queue_refused_total",
    "Requests refused because too many waited or the wait was too long, by tenant",
    ["tenant"]
  )
  /** tenants and models with series of overflows, which start at 0 */
  const overflowing = new Set<string>()
  const startOverflows = (tenant: string, model: string): void => {
    const series = `${tenant} ${model}`
    if (overflowing.has(series)) return
    overflowing.add(series)
    for (const outcome of ["refused", "truncated"]) overflows.inc({ tenant, model, outcome }, 0)
  }
  return {
    /** Counts a finished request. `modelResolved`: whether its model may be a label. */
    observe: (record: AuditRecord, modelResolved: boolean): void => {
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
      if (record.usage.tokensOut > 0) tokens.inc({ tenant, model, direction: "out" }, record.usage.tokensOut)
    },
    /** Records that the backend's first frame came `ms` after the request arrived. `model`: a discovered name. */
    firstFrame: (ms: number, model: string): void => firstFrames.observe({ model }, Math.max(0, ms) / 1000),
    /** Records that this process knew of a revocation `latencyMs` after it was written. */
    revoked: (latencyMs: number) => Effect.sync(() => revocations.observe(Math.max(0, latencyMs) / 1000)),
    /** Counts transcripts of opted-in keys that could not be written. */
    promptsDropped: (count: number) => Effect.sync(() => dropped.inc(count)),
    /** Counts a request that Node's parser or timers refused. It has no audit row. */
    malformed: (reason: MalformedReason): void => malformed.inc({ reason }),
    /** Counts a failed run of a background task. */
    backgroundFailed: (task: BackgroundTask) => Effect.sync(() => failures.inc({ task })),
    /** Wraps a wait for a place at the backend: counts who waits, how long, and who is refused. */
    queueing:
      (tenant: string) =>
      <A, E extends { readonly _tag: string }, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
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
    /** Counts a load of a model, which took `ms`. 0: there was none, and the series begins. */
    modelLoaded: (model: string, ms: number) =>
      Effect.sync(() => {
        loads.inc({ model }, ms > 0 ? 1 : 0)
        loadSeconds.inc({ model }, ms / 1000)
      }),
    /** Adds a figure. When its read fails or hangs, a gauge shows that, and the other metrics are still given. */
    probe: ({ help, labels: labelNames = [], name, read, type = "gauge" }: Probe) =>
      Effect.map(Effect.context(), (context) => {
        const unknown = labelNames.length === 0 ? Number.NaN : []
        const readInTime = read.pipe(
          Effect.timeout("1500 millis"),
          Effect.catchCause(() => Effect.succeed(unknown))
        )
        const figure = new (type === "counter" ? Counter : Gauge)({
          name,
          help,
          labelNames,
          registers,
          collect: async () => {
            const found = await Effect.runPromiseWith(context)(readInTime)
            // A counter cannot be unknown. It keeps its last figure.
            if (type === "counter" && !Number.isFinite(found)) return
            figure.reset()
            for (const { labels, value } of typeof found === "number"
              ? [{ labels: {}, value: found }]
              : found)
              figure.inc(labels, value)
          }
        })
      }),
    /** The values of some gauges, as `Replicas` stores them. */
    gauges: (names: ReadonlyArray<string>): Effect.Effect<Readonly<Record<string, number | null>>> =>
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
    /** Prometheus text exposition format 0.0.4. */
    exposition: Effect.promise(() => registry.metrics())
  }
})

export class Metrics extends Context.Service<Metrics>()("tollgate/observability/Metrics", { make }) {}

export const layer: Layer.Layer<Metrics> = Layer.effect(Metrics, make)
