/**
 * `npm run drill`: takes away Postgres, Redis, the model server and a replica in turn (killed, frozen, slow) under traffic
 * through haproxy, and says what the clients, the audit, the log, the metrics and the alerts said. Ends with 1 when an
 * outage was silent: failed requests without an alert, or without a log line or metric; requests that are not in the audit;
 * an answer that is not the gateway's own; or a service that does not come back.
 *
 * Prometheus runs fifteen times faster than in production (`Prometheus.ts`), and so do the gateway's polls. Arguments:
 * `--seconds 30` of each outage, `--only <text of its name>`, `--write` puts the table into docs/alerts.md,
 * `--record` keeps what Prometheus scraped for test/deploy/alerts.test.ts.
 */
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { newKey } from "../scale/World.ts"
import { drill } from "./drill.ts"
import { Ground, layerGround } from "./Ground.ts"
import { outagesOf } from "./outages.ts"
import { markdown, type Row, write } from "./table.ts"
import { traffic } from "./traffic.ts"

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "30" },
    only: { type: "string", default: "" },
    write: { type: "boolean", default: false },
    record: { type: "boolean", default: false }
  }
})
const seconds = Number(options.seconds)

const print = (text: string) => Effect.sync(() => void process.stdout.write(`${text}\n`))

const said = (row: Row): string =>
  [
    row.outage,
    `  clients: ${row.clients}`,
    `  audit:   ${row.audit}`,
    `  log:     ${row.log}`,
    `  metrics: ${row.metrics}`,
    `  alerts:  ${row.alerts}`,
    `  back:    ${row.back}`,
    ...row.silent.map((why) => `  SILENT:  ${why}`)
  ].join("\n")

const program = Effect.gen(function* () {
  const ground = yield* Ground
  const keys = [yield* newKey("drill-1"), yield* newKey("drill-2")]
  const clients = yield* traffic(
    ground.url,
    Array.from({ length: 4 }).flatMap(() => keys)
  )
  yield* Effect.sleep("5 seconds")
  const rows: Array<Row> = []
  for (const outage of outagesOf(ground)) {
    if (!outage.name.toLowerCase().includes(options.only.toLowerCase())) continue
    const row = yield* drill(outage, clients, { holdMs: seconds * 1000, recording: options.record })
    rows.push(row)
    yield* print(said(row))
  }
  const table = markdown(rows)
  yield* print(`\n${table}`)
  if (options.write) write(table, seconds)
  return rows.every(({ silent }) => silent.length === 0)
})

process.exitCode = (await Effect.runPromise(
  program.pipe(Effect.scoped, Effect.provide(layerGround), Effect.scoped)
))
  ? 0
  : 1
