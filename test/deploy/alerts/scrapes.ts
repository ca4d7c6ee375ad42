/** What Prometheus scrapes from two replicas, every 15 seconds for 30 minutes, on a quiet day; and how outages look. */

/** Values in promtool's notation. */
export type Series = Readonly<Record<string, string>>

export interface Fired {
  readonly alert: string
  readonly labels: Readonly<Record<string, string>>
  readonly summary: string
}

export interface Outage {
  readonly name: string
  /** replaces or adds to the series of a quiet day */
  readonly series: Series
  /** series of a quiet day that are missing */
  readonly without?: RegExp
  readonly at: ReadonlyArray<readonly [time: string, fired: ReadonlyArray<Fired>]>
}

export const scrapes = 120

export const [a, b] = [`job="tollgate",instance="a:8080"`, `job="tollgate",instance="b:8080"`]

export const same = (value: number) => `${value}x${scrapes}`
/** a counter that grows by so much each scrape */
export const grows = (by: number) => `0+${by}x${scrapes}`
/** five minutes of one value, then another */
export const changes = (before: number, after: number) => `${before}x19 ${after}x${scrapes - 20}`
/** five minutes of rest, then a counter that grows by so much each scrape */
export const growsLater = (by: number) => `0x19 0+${by}x${scrapes - 20}`
/** fresh lists for five minutes, then none; the age of the list in force grows */
export const agesLater = `0 15 0 15 0 15 0 15 0 15 0 15 0 15 0 15 0 15 0 15 30+15x${scrapes - 20}`

export const both = (series: (labels: string) => Series): Series => ({ ...series(a), ...series(b) })

const bounds = ["0.01", "0.025", "0.5", "1", "2.5", "10", "30", "60", "+Inf"] as const

/** A histogram to which each scrape adds so many values, all in the bucket of `bound`. */
export const histogram = (
  name: string,
  labels: string,
  bound: (typeof bounds)[number],
  perScrape: number
): Series =>
  Object.fromEntries(
    bounds.map((le, i) => [
      `${name}_bucket{${labels},le="${le}"}`,
      i < bounds.indexOf(bound) ? same(0) : grows(perScrape)
    ])
  )

const quiet: Series = both((of) => ({
  [`up{${of}}`]: same(1),
  [`tollgate_breaker_state{${of}}`]: same(0),
  [`tollgate_breaker_open_keys{${of}}`]: same(0),
  ...Object.fromEntries(
    ["database", "cache", "backend"].map((name) => [`tollgate_ready{${of},dependency="${name}"}`, same(1)])
  ),
  [`tollgate_discovery_models{${of}}`]: same(2),
  [`tollgate_discovery_age_seconds{${of}}`]: `0 15 ${"0 15 ".repeat(scrapes / 2 - 1)}`.trim(),
  [`gateway_requests_total{${of},tenant="acme",model="m",status="200"}`]: grows(100),
  [`gateway_requests_total{${of},tenant="acme",model="m",status="429"}`]: grows(5),
  [`gateway_requests_total{${of},tenant="acme",model="m",status="502"}`]: grows(1),
  [`tollgate_audit_lag_seconds{${of}}`]: same(0.01),
  [`tollgate_audit_backlog{${of}}`]: same(3),
  [`tollgate_counter_drift_tokens{${of}}`]: same(40),
  [`tollgate_tenant_budget_tokens{${of},tenant="acme",period="month"}`]: same(1000),
  [`tollgate_tenant_budget_left_tokens{${of},tenant="acme",period="month"}`]: same(60),
  [`tollgate_intents_stuck{${of}}`]: same(0),
  [`tollgate_background_failures_total{${of},task="model_discovery"}`]: same(0),
  [`tollgate_background_failures_total{${of},task="queue_beat"}`]: same(0),
  ...histogram("tollgate_revocation_seconds", of, "0.025", 1),
  ...histogram("tollgate_backend_first_frame_seconds", of, "1", 100),
  ...histogram("tollgate_queue_wait_seconds", `${of},tenant="acme"`, "1", 100),
  [`tollgate_queue_refused_total{${of},tenant="acme"}`]: same(0),
  [`process_cpu_seconds_total{${of}}`]: grows(4),
  [`nodejs_eventloop_lag_p99_seconds{${of}}`]: same(0.02),
  [`tollgate_prompt_log_dropped_total{${of}}`]: same(0)
}))

export const seriesOf = ({ series, without }: Outage): Series =>
  Object.fromEntries(
    Object.entries({ ...quiet, ...series }).filter(([name]) => without === undefined || !without.test(name))
  )
