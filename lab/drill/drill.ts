/** One outage: begun, watched, ended, and what everybody said of it. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Ground } from "./Ground.ts"
import { linesOf, scrape, tally, wrongGauges } from "./observed.ts"
import type { Outage } from "./outages.ts"
import { timesFaster } from "./Prometheus.ts"
import { record } from "./record.ts"
import type { Row } from "./table.ts"
import type { Traffic } from "./traffic.ts"

/** Until no alert is pending or firing, so that each outage has its own. */
const calm = Effect.gen(function* () {
  const { prometheus } = yield* Ground
  const since = performance.now()
  while ((yield* prometheus.alerts).length > 0) {
    if (performance.now() - since > 120_000) return yield* Effect.die("alerts do not end")
    yield* Effect.sleep("500 millis")
  }
})

/** Requests in the audit, and rows: refusals of strangers may share one. */
const audit = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly requests: number; readonly rows: number }>`
    SELECT coalesce(sum(repeats), 0)::int AS requests, count(*)::int AS rows FROM audit_log`
  return { requests: row?.requests ?? 0, rows: row?.rows ?? 0 }
})

/** Waits for rows that are written late, at most 30 seconds. */
const auditedSince = Effect.fnUntraced(function* (
  before: { readonly requests: number; readonly rows: number },
  expected: number
) {
  const since = performance.now()
  for (;;) {
    const now = yield* audit
    const found = { requests: now.requests - before.requests, rows: now.rows - before.rows }
    if (found.requests >= expected || performance.now() - since > 30_000) return found
    yield* Effect.sleep("200 millis")
  }
})

export const drill = Effect.fnUntraced(function* (
  outage: Outage,
  { answers, clear, pause, resume }: Traffic,
  { holdMs, recording }: { readonly holdMs: number; readonly recording: boolean }
) {
  const { prometheus, replicas, takeLog } = yield* Ground
  yield* calm
  yield* pause
  yield* Effect.sleep("2 seconds")
  const before = yield* audit
  clear()
  resume()
  yield* Effect.sleep("2 seconds")
  takeLog()
  const scrapeAll = Effect.forEach(replicas, ({ url }) => scrape(url), { concurrency: 2 })
  const earlier = yield* scrapeAll
  const startedS = Math.floor(Date.now() / 1000)
  const began = performance.now()
  yield* outage.begin
  const fired = new Map<string, number>()
  while (performance.now() - began < holdMs) {
    yield* Effect.sleep("500 millis")
    for (const { firing, labels } of yield* prometheus.alerts) {
      const name = labels["alertname"] ?? ""
      if (firing && !fired.has(name)) fired.set(name, (performance.now() - began) / 1000)
    }
  }
  const firing = (yield* prometheus.alerts).filter((alert) => alert.firing)
  const endedS = Math.floor(Date.now() / 1000)
  const pages = yield* scrapeAll
  const gauges = new Set(
    pages.flatMap((text, i) =>
      text === undefined ? ["`up` 0 of one replica"] : wrongGauges(text, earlier[i] ?? "")
    )
  )
  const lines = yield* linesOf(takeLog())
  const ended = performance.now()
  const during = answers.filter(({ at }) => at >= began)
  yield* outage.end
  /** Ten good answers in a row. */
  const isBack = () =>
    answers.length >= 10 && answers.slice(-10).every(({ at, status }) => at > ended && status === 200)
  while (!isBack() && performance.now() - ended < 60_000) yield* Effect.sleep("50 millis")
  const backS = isBack() ? ((answers.at(-10)?.at ?? 0) - ended) / 1000 : undefined
  yield* pause
  const reached = answers.filter(({ requestId }) => requestId !== undefined).length
  const { requests, rows } = yield* auditedSince(before, reached)
  resume()
  if (recording) yield* record(outage.name, startedS - 20, endedS, firing)

  const failed = during.filter(({ status }) => status !== 200).length
  const manyFailed = failed > during.length / 20
  const foreign = answers.filter(({ type }) => type === "page").length
  const told = [...fired].toSorted(([, a], [, b]) => a - b)
  const minutes = (after: number) => Math.round((after * timesFaster) / 6) / 10
  return {
    outage: outage.name,
    clients: tally(during.map(({ status, type }) => (status === 0 ? type : `${status} ${type}`.trim()))),
    audit: `${reached} requests: ${Math.min(requests, reached)} in ${rows} rows`,
    log: lines.join(", ") || "–",
    metrics: [...gauges].join(", ") || "–",
    alerts: told.map(([name, after]) => `\`${name}\` (${minutes(after)} min)`).join(", ") || "–",
    back: backS === undefined ? "never" : `${backS.toFixed(1)} s`,
    silent: [
      ...(manyFailed && fired.size === 0 ? ["requests failed and no alert fired"] : []),
      ...(manyFailed && lines.length === 0 && gauges.size === 0
        ? ["requests failed and no log line or metric says so"]
        : []),
      ...(foreign > 0 ? [`${foreign} answers were not the gateway's`] : []),
      ...(requests < reached ? [`${reached - requests} requests are not in the audit`] : []),
      ...(backS === undefined ? ["it did not come back"] : [])
    ]
  } satisfies Row
})
