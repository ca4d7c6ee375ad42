/** A real Prometheus that scrapes every second. */
import { spawn, spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { Data, Effect, Schedule, Schema, type Scope } from "effect"
import { freePort, type TestServerFailed } from "./servers/processes.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

const root = path.resolve(import.meta.dirname, "../..")
export class PrometheusFailed extends Data.TaggedError("PrometheusFailed")<{ readonly message: string }> {}

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

export interface Prometheus {
  /** the present values of a query, by their labels */
  query(
    expr: string
  ): Effect.Effect<
    ReadonlyArray<{ readonly labels: Readonly<Record<string, string>>; readonly value: string }>,
    PrometheusFailed
  >
  /** what its API answers at `path` */
  ask<A>(schema: Schema.Codec<A, unknown>, path: string): Effect.Effect<A, PrometheusFailed>
}

/** `targets`: host:port of each replica. `rules`: a file of rules. */
export const makePrometheus = Effect.fnUntraced(function* (
  targets: ReadonlyArray<string>,
  rules = "groups: []\n"
): Effect.fn.Return<Prometheus, PrometheusFailed | TestServerFailed, Scope.Scope> {
  const found = spawnSync(path.join(root, "test/deploy/prometheus.sh"), { encoding: "utf8" })
  if (found.status !== 0) return yield* new PrometheusFailed({ message: `no Prometheus: ${found.stderr}` })
  const folder = yield* temporaryFolder
  writeFileSync(path.join(folder, "rules.yaml"), rules)
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
  const ready = ask(Schema.Json, "/api/v1/alerts")
  yield* Effect.retry(ready, { schedule: Schedule.spaced("200 millis"), times: 100 })
  return {
    ask,
    query: (expr) =>
      Effect.map(ask(Vector, `/api/v1/query?${new URLSearchParams({ query: expr })}`), ({ data }) =>
        data.result.map(({ metric: labels, value: [, value] }) => ({ labels, value }))
      )
  }
})
