/**
 * A real Prometheus with the rules of deploy/prometheus, faster: one second here is fifteen seconds there. It scrapes
 * every second instead of every fifteen; ranges, `for` and ages in seconds are fifteen times shorter.
 */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Schema } from "effect"
import { makePrometheus } from "../../test/support/Prometheus.ts"

export const timesFaster = 15

const root = path.resolve(import.meta.dirname, "../..")
const rules = readFileSync(path.join(root, "deploy/prometheus/alerts.yaml"), "utf8")

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

export interface Alert {
  readonly labels: Readonly<Record<string, string>>
  readonly firing: boolean
}

/** `targets`: host:port of each replica. */
export const makeFastPrometheus = Effect.fnUntraced(function* (targets: ReadonlyArray<string>) {
  const { ask } = yield* makePrometheus(targets, faster)
  return {
    /** alerts that are pending or firing */
    alerts: Effect.map(ask(Alerts, "/api/v1/alerts"), ({ data }): ReadonlyArray<Alert> =>
      data.alerts.map(({ labels, state }) => ({ labels, firing: state === "firing" }))
    ),
    /** values of a metric, one a second, by its labels; undefined where there is none */
    range: (metric: string, fromS: number, untilS: number) => {
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

export type FastPrometheus = Effect.Success<ReturnType<typeof makeFastPrometheus>>
