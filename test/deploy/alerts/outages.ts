/** Outages, and with each one the alerts that must fire at a time. No other alert may. */
import {
  a,
  b,
  both,
  type Fired,
  grows,
  histogram,
  type Outage,
  same,
  scrapes,
  type Series,
  changes,
  agesLater,
  growsLater
} from "./scrapes.ts"

const job = { job: "tollgate" }
const onA = { ...job, instance: "a:8080" }

export const quietDay: Outage = {
  name: "nothing is wrong",
  series: {},
  at: [
    ["5m", []],
    ["20m", []],
    ["30m", []]
  ]
}

const fires = (alert: string, summary: string, labels: Fired["labels"] = job): Fired => ({
  alert: `Tollgate${alert}`,
  labels,
  summary
})

/** The same alert for each replica. */
const firesOnBoth = (
  alert: string,
  summary: (instance: string) => string,
  more: Fired["labels"] = {}
): ReadonlyArray<Fired> =>
  ["a:8080", "b:8080"].map((instance) => fires(alert, summary(instance), { ...job, instance, ...more }))

/** Nothing fires at the first time, and these at the second. */
const quietThen = (quiet: string, loud: string, ...fired: ReadonlyArray<Fired>): Outage["at"] => [
  [quiet, []],
  [loud, fired]
]

const dependencyDown = (dependency: string): Fired =>
  fires("DependencyDown", `No replica reaches its ${dependency}`, { ...job, dependency })

const allFail = fires("Failing", "100% of requests fail with 5xx")
const auditLate = firesOnBoth("AuditLate", (instance) => `${instance} cannot make completions durable`)

/** All requests end with this status from the fifth minute on. */
const allEnd = (status: string): Series =>
  both((of) => ({
    [`gateway_requests_total{${of},tenant="acme",model="m",status="200"}`]: `0+100x19 1900x${scrapes - 20}`,
    [`gateway_requests_total{${of},tenant="acme",model="m",status="429"}`]: `0+5x19 95x${scrapes - 20}`,
    [`gateway_requests_total{${of},tenant="none",model="none",status="${status}"}`]: growsLater(100)
  }))

export const outages: ReadonlyArray<Outage> = [
  {
    name: "a replica is gone",
    series: { [`up{${a}}`]: changes(1, 0) },
    at: quietThen("5m30s", "7m", fires("Down", "a:8080 is not answering", onA))
  },
  {
    name: "no replica is scraped",
    series: {},
    without: /^/,
    at: quietThen("3m", "10m", fires("NotScraped", "No replica of the gateway is scraped"))
  },
  {
    name: "the model server is gone",
    series: both((of) => ({
      [`tollgate_ready{${of},dependency="backend"}`]: changes(1, 0),
      [`tollgate_breaker_state{${of}}`]: changes(0, 2),
      [`tollgate_discovery_age_seconds{${of}}`]: agesLater,
      [`tollgate_discovery_models{${of}}`]: `2x27 0x${scrapes - 28}`,
      [`tollgate_background_failures_total{${of},task="model_discovery"}`]: growsLater(3),
      ...allEnd("502")
    })),
    at: quietThen(
      "5m30s",
      "7m",
      dependencyDown("backend"),
      fires("BreakerOpen", "The model server has failed so often that nobody is sent to it"),
      ...firesOnBoth("ModelListStale", (instance) => `${instance} could not read the model list for 2m 30s`)
    )
  },
  {
    name: "the requests of two keys make the model server fail, and each has its probe now and then",
    series: { [`tollgate_breaker_open_keys{${a}}`]: `0x19 ${"2 2 1 0 2 2 ".repeat(10)}` },
    at: quietThen(
      "12m",
      "16m",
      fires(
        "KeysRefused",
        "The model server fails for the requests of 2 keys or tenants, which are refused with 502"
      )
    )
  },
  {
    name: "one replica is cut off from Redis",
    series: { [`tollgate_ready{${a},dependency="cache"}`]: changes(1, 0) },
    at: quietThen(
      "8m",
      "11m",
      fires("ReplicaCutOff", "a:8080 does not reach its cache, other replicas do", {
        ...onA,
        dependency: "cache"
      })
    )
  },
  {
    name: "the model server has no models",
    series: both((of) => ({ [`tollgate_discovery_models{${of}}`]: changes(2, 0) })),
    at: quietThen("6m", "8m", fires("NoModels", "No model may be used"))
  },
  {
    name: "the model list of one replica cannot be read",
    series: {
      [`tollgate_discovery_age_seconds{${a}}`]: agesLater,
      [`tollgate_background_failures_total{${a},task="model_discovery"}`]: growsLater(3)
    },
    at: quietThen("6m", "7m", fires("ModelListStale", "a:8080 could not read the model list for 2m 30s", onA))
  },
  {
    name: "Postgres is gone",
    series: both((of) => ({
      [`tollgate_ready{${of},dependency="database"}`]: changes(1, 0),
      [`tollgate_audit_lag_seconds{${of}}`]: `0.01x19 15+15x${scrapes - 20}`,
      ...allEnd("503")
    })),
    at: [
      ["7m", [dependencyDown("database"), ...auditLate]],
      ["12m", [dependencyDown("database"), allFail, ...auditLate]]
    ]
  },
  {
    name: "Redis is gone",
    series: both((of) => ({
      [`tollgate_ready{${of},dependency="cache"}`]: changes(1, 0),
      [`tollgate_background_failures_total{${of},task="queue_beat"}`]: growsLater(15),
      ...allEnd("503")
    })),
    at: [
      ["7m", [dependencyDown("cache")]],
      [
        "20m",
        [
          dependencyDown("cache"),
          allFail,
          ...firesOnBoth(
            "BackgroundFailing",
            (instance) => `Background task queue_beat of ${instance} keeps failing`,
            { task: "queue_beat" }
          )
        ]
      ]
    ]
  },
  {
    name: "the database is slow while strangers flood",
    series: { [`tollgate_audit_backlog{${a}}`]: `3x19 3+1000x20 20000x${scrapes - 41}` },
    at: quietThen("6m", "8m", fires("AuditBacklog", "12k audit rows of a:8080 wait to be written", onA))
  },
  {
    name: "Redis evicts counters",
    series: { [`tollgate_counter_drift_tokens{${a}}`]: changes(40, 25_000) },
    at: quietThen(
      "14m",
      "16m",
      fires("CountersDrift", "Live counters and ledger differ by 25000 tokens and are not set right", onA)
    )
  },
  {
    name: "a budget of a tenant is nearly spent",
    series: { [`tollgate_tenant_budget_left_tokens{${a},tenant="acme",period="month"}`]: changes(60, 50) },
    at: [
      [
        "8m",
        [
          fires("BudgetNearlySpent", "95 % of the budget of tenant acme are spent (period month)", {
            ...job,
            tenant: "acme",
            period: "month"
          })
        ]
      ]
    ]
  },
  {
    name: "the budget of a tenant is spent",
    series: both((of) => ({
      [`tollgate_tenant_budget_left_tokens{${of},tenant="acme",period="month"}`]: changes(60, 0)
    })),
    at: quietThen(
      "5m30s",
      "8m",
      fires("BudgetSpent", "The budget of tenant acme is spent (period month)", {
        ...job,
        tenant: "acme",
        period: "month"
      })
    )
  },
  {
    name: "a row of a process that died is refused by the database",
    series: { [`tollgate_intents_stuck{${b}}`]: changes(0, 3) },
    at: quietThen("9m", "11m", fires("IntentsStuck", "3 requests of processes that died cannot be closed"))
  },
  {
    name: "revocations are late",
    series: both((of) => histogram("tollgate_revocation_seconds", of, "2.5", 1)),
    at: [["10m", [fires("RevocationSlow", "A revoked key kept working for more than a second")]]]
  },
  {
    name: "the model server swaps models all the time",
    series: both((of) => histogram("tollgate_backend_first_frame_seconds", of, "60", 100)),
    at: quietThen(
      "8m",
      "15m",
      fires("SlowFirstFrame", "One request in twenty waits more than 30 s before anything moves")
    )
  },
  {
    name: "the queue refuses",
    series: { [`tollgate_queue_refused_total{${a},tenant="acme"}`]: growsLater(4) },
    at: quietThen(
      "10m",
      "20m",
      fires("QueueRefusing", "80 requests in five minutes found no place in the queue for the model server")
    )
  },
  {
    name: "the queue is slow",
    series: both((of) => histogram("tollgate_queue_wait_seconds", `${of},tenant="acme"`, "30", 100)),
    at: quietThen(
      "8m",
      "15m",
      fires("QueueSlow", "One request in twenty waits 29s in the queue for the model server")
    )
  },
  {
    name: "the model server loads models most of the time",
    series: both((of) => ({ [`tollgate_model_load_seconds_total{${of},model="m"}`]: grows(4.5) })),
    at: quietThen("8m", "20m", fires("ModelsThrash", "The model server loads models 60% of the time"))
  },
  {
    name: "a replica has too much to do",
    series: { [`process_cpu_seconds_total{${a}}`]: grows(14.5) },
    at: quietThen("5m", "15m", fires("Busy", "a:8080 uses up its core", onA))
  },
  {
    name: "an event loop stands still",
    series: { [`nodejs_eventloop_lag_p99_seconds{${b}}`]: same(0.6) },
    at: [["15m", [fires("Busy", "b:8080 uses up its core", { ...job, instance: "b:8080" })]]]
  },
  {
    name: "prompts of opted-in keys cannot be stored",
    series: { [`tollgate_prompt_log_dropped_total{${a}}`]: `0x19 30x${scrapes - 20}` },
    at: [["7m", [fires("PromptsLost", "30 prompts of opted-in keys were not logged", onA)]]]
  }
]
