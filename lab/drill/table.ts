/** The table of the drill, and its place in docs/alerts.md. */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { timesFaster } from "./Prometheus.ts"

export interface Row {
  readonly outage: string
  readonly clients: string
  readonly audit: string
  readonly log: string
  readonly metrics: string
  readonly alerts: string
  readonly back: string
  /** why the outage counts as silent */
  readonly silent: ReadonlyArray<string>
}

const heads = ["Outage", "Clients got", "Audit rows", "Metrics", "Alerts, after", "Back after"]

export const markdown = (rows: ReadonlyArray<Row>): string =>
  [
    heads,
    heads.map(() => "---"),
    ...rows.map(({ alerts, audit, back, clients, metrics, outage }) => [
      outage,
      clients,
      audit,
      metrics,
      alerts,
      back
    ])
  ]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll("|", "/")).join(" | ")} |`)
    .join("\n")

/** Puts the table between its marks. */
export const write = (table: string, seconds: number): void => {
  const file = path.resolve(import.meta.dirname, "../../docs/alerts.md")
  const text = readFileSync(file, "utf8")
  const [start, end] = ["<!-- drill -->\n", "\n<!-- end of drill -->"]
  const [from, until] = [text.indexOf(start) + start.length, text.indexOf(end)]
  const date = new Date().toISOString().slice(0, 10)
  const minutes = (seconds * timesFaster) / 60
  const head = `${date}. Each outage lasted ${seconds} s at fifteen times the speed, so ${minutes} minutes for the alerts.`
  writeFileSync(file, `${text.slice(0, from)}${head}\n\n${table}${text.slice(until)}`)
}
