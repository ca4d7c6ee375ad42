/**
 * A real Prometheus with the rules of deploy/prometheus, faster: one second here is fifteen seconds there. It scrapes
 * every second instead of every fifteen; ranges, `for` and ages in seconds are fifteen times shorter.
 */
import { spawn, spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect, Schedule, Schema, type Scope } from "effect"
import { freePort, type TestServerFailed } from "./servers/processes.ts"

export const timesFaster = 15

const root = path.resolve(import.meta.dirname, "../..")
const rules = readFileSync(path.join(root, "deploy/prometheus/alerts.yaml"), "utf8")

class PrometheusFailed extends Data.TaggedError("PrometheusFailed")<{ readonly message: string }> {}

const inMs = (figure: string, unit: string) => Number(figure) * (unit === "m" ? 60_000 : 1000)

const faster = rules
  .replaceAll(
    /for: (\d+)([sm])/g,
    (_, figure: string, unit: string) => `for: ${inMs(figure, unit) / timesFaster}ms`
  )
  .replaceAll(
    /\[(\d+)([sm])\]/g,
    (_, figure: string, unit: string) => `[${inMs(figure, unit) / timesFaster}ms]`
  )
  .replaceAll(
    /(_age_seconds > )(\d+)/g,
    (_, before: string, figure: string) => `${before}${Number(figure) / timesFaster}`
  )

/** The metrics that the rules ask for. */
export const ruleMetrics: ReadonlyArray<string> = [
  ...new Set(rules.match(/\b(?:gateway|tollgate|process|nodejs)_[a-z0-9_]+|\bup\b(?=[{ ])/g))
]

const Alerts = Schema.Struct({
  data: Schema.Struct({
    alerts: Schema.Array(
      Schema.Struct({
        labels: Schema.Record(Schema.String, Schema.String),
        state: Schema.String
      })
    )
  })
})

const Matrix = Schema.Struct({
  data: Schema.Struct({
    result: Schema.Array(
      Schema.Struct({
        metric: Schema.Record(Schema.String, Schema.String),
        values: Schema.Array(Schema.Tuple([Schema.Finite, Schema.String]))
      })
    )
  })
})

const Vector = Schema.Struct({
  data: Schema.Struct({
    result: Schema.Array(
      Schema.Struct({
        metric: Schema.Record(Schema.String, Schema.String),
        value: Schema.Tuple([Schema.Finite, Schema.String])
      })
    )
  })
})

export interface Alert {
  readonly labels: Readonly<Record<string, string>>
  readonly firing: boolean
}

export interface Prometheus {
  /** the present values of a query, by their labels */
  query(
    expr: string
  ): Effect.Effect<
    ReadonlyArray<{ readonly labels: Readonly<Record<string, string>>; readonly value: string }>,
    PrometheusFailed
  >
  /** alerts that are pending or firing */
  readonly alerts: Effect.Effect<ReadonlyArray<Alert>, PrometheusFailed>
  /** values of a metric, one a second, by its labels; undefined where there is none */
  range(
    metric: string,
    fromS: number,
    untilS: number
  ): Effect.Effect<
    ReadonlyArray<{
      readonly labels: Readonly<Record<string, string>>
      readonly values: ReadonlyArray<string | undefined>
    }>,
    PrometheusFailed
  >
}

/** `targets`: host:port of each replica. */
export const makePrometheus = Effect.fnUntraced(function* (
  targets: ReadonlyArray<string>
): Effect.fn.Return<Prometheus, PrometheusFailed | TestServerFailed, Scope.Scope> {
  const found = spawnSync(path.join(root, "test/deploy/prometheus.sh"), { encoding: "utf8" })
  if (found.status !== 0) return yield* new PrometheusFailed({ message: `no Prometheus: ${found.stderr}` })
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(path.join(tmpdir(), "tg-prom-"))),
    (name) => Effect.sync(() => rmSync(name, { recursive: true, force: true, maxRetries: 5 }))
  )
  writeFileSync(path.join(folder, "rules.yaml"), faster)
  writeFileSync(
    path.join(folder, "prometheus.yaml"),
    JSON.stringify({
      global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "1s" },
      rule_files: ["rules.yaml"],
      scrape_configs: [{ job_name: "tollgate", static_configs: [{ targets }] }]
    })
  )
  const port = yield* freePort
  const url = `http://127.0.0.1:${port}`
  yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        path.join(found.stdout.trim(), "prometheus"),
        [
          `--config.file=${folder}/prometheus.yaml`,
          `--storage.tsdb.path=${folder}/data`,
          `--web.listen-address=127.0.0.1:${port}`,
          "--log.level=error"
        ],
        { stdio: ["ignore", "ignore", "inherit"] }
      )
    ),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )
  const ask = <A>(schema: Schema.Codec<A, unknown>, what: string): Effect.Effect<A, PrometheusFailed> =>
    Effect.tryPromise(() => fetch(`${url}${what}`).then((response) => response.json())).pipe(
      Effect.flatMap(Schema.decodeUnknownEffect(schema)),
      Effect.mapError((cause) => new PrometheusFailed({ message: `${what}: ${cause}` }))
    )
  const alerts = Effect.map(ask(Alerts, "/api/v1/alerts"), ({ data }) =>
    data.alerts.map(({ labels, state }) => ({ labels, firing: state === "firing" }))
  )
  yield* Effect.retry(alerts, { schedule: Schedule.spaced("200 millis"), times: 100 })
  return {
    alerts,
    query: (expr) =>
      Effect.map(ask(Vector, `/api/v1/query?${new URLSearchParams({ query: expr })}`), ({ data }) =>
        data.result.map(({ metric: labels, value: [, value] }) => ({ labels, value }))
      ),
    range: (metric, fromS, untilS) => {
      const query = new URLSearchParams({
        query: `{__name__="${metric}",job="tollgate"}`,
        start: String(fromS),
        end: String(untilS),
        step: "1"
      })
      return Effect.map(ask(Matrix, `/api/v1/query_range?${query}`), ({ data }) =>
        data.result.map(({ metric: labels, values }) => {
          const at = new Map(values.map(([time, value]) => [Math.round(time - fromS), value]))
          return {
            labels,
            values: Array.from({ length: untilS - fromS + 1 }, (_, second) => at.get(second))
          }
        })
      )
    }
  }
})
