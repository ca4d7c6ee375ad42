/**
 * `npm run bench:growth`: how the cost of a request grows with the number of keys, frames, streams, audit rows and
 * replicas. Gateway on core 0, everything else on core 1; one measurement a point, so trust the shape, not the digit.
 *
 * Arguments: `--seconds 5`; `--rows 1000000` for the largest audit log (ten million take a quarter of an hour and 4 GB).
 */
import { parseArgs } from "node:util"
import { Effect, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as contenders from "./contenders.ts"
import { measure, measureAsked, type Sample } from "./measure.ts"
import type { Work } from "./works.ts"

const { values: options } = parseArgs({
  options: { seconds: { type: "string", default: "5" }, rows: { type: "string", default: "1000000" } }
})
const seconds = Number(options.seconds)
const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

const short: Work = {
  name: "short",
  path: "/api/chat",
  body: JSON.stringify({ model: "short", stream: false, messages: [{ role: "user", content: "Hello" }] }),
  connections: 50
}

const stream = (model: string, connections: number, frames: number): Work => ({
  name: model,
  path: "/api/chat",
  body: JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] }),
  connections,
  frames
})

const line = (what: string, sample: Sample) =>
  say(
    `| ${what} | ${sample.rps.toFixed(0)} | ${sample.cpuPerRequest.toFixed(0)} | ` +
      `${sample.cpuPerFrame === 0 ? "" : sample.cpuPerFrame.toFixed(2)} | ` +
      `${(sample.firstP50 / 1000).toFixed(2)} | ${sample.rss.toFixed(0)} | ${sample.statuses} |`
  )

const title = (what: string) =>
  say(
    `\n| ${what} | req/s | CPU µs/request | CPU µs/frame | first byte p50 ms | RSS MiB | answers |\n|---|---|---|---|---|---|---|`
  )

/** No more at a time than a statement may take. */
const atOnce = 50_000

/** Rows as the gateway writes them, of requests nobody made. */
const fillAudit = (stores: contenders.Stores, upTo: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [found] = yield* sql<{ readonly rows: number }>`SELECT count(*)::int AS rows FROM audit_log`
    for (let rows = found?.rows ?? 0; rows < upTo; rows += atOnce) {
      yield* sql`
        INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
          streamed, tokens_in, tokens_out, usage_source, status, latency_ms, client_ip)
        SELECT gen_random_uuid(), at, at, k.tenant_id, k.id, k.prefix, 'POST', '/api/chat', 'short', false, 7, 3, 'backend',
          200, 12, '127.0.0.1'
        FROM generate_series(1, ${Math.min(atOnce, upTo - rows)}::int) AS n,
          LATERAL (SELECT now() - n * interval '1 second' AS at) AS t, (SELECT * FROM api_keys LIMIT 1) AS k`
    }
  }).pipe(Effect.provide(stores.database))

const growth: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const stores = yield* contenders.makeStores(999)
  const { url } = yield* contenders.backend
  const tollgate = yield* contenders.tollgate(url, stores)
  yield* measure(tollgate, short, 10)

  yield* title("keys in use")
  for (const count of [1, 10, 100, 1000]) {
    const key = [stores.keys.good, ...stores.keys.others].slice(0, count).join(",")
    // The first use of each key is an argon2 verify: that is not what is measured here.
    yield* measureAsked({ ...tollgate, key }, { ...short, connections: 1 }, count === 1000 ? 20 : 3)
    yield* line(String(count), yield* measureAsked({ ...tollgate, key }, short, seconds))
  }

  yield* title("frames an answer")
  for (const frames of [10, 100, 1000, 10_000]) {
    yield* line(String(frames), yield* measure(tollgate, stream(`frames-${frames}`, 10, frames), seconds))
  }

  yield* title("streams at 20 ms a frame")
  for (const streams of [1, 10, 100, 300, 1000]) {
    yield* line(
      String(streams),
      yield* measure(tollgate, stream("paced", streams, 100), Math.max(6, seconds))
    )
  }

  yield* title("rows in the audit log")
  for (let rows = 1000; rows <= Number(options.rows); rows *= 10) {
    yield* fillAudit(stores, rows)
    yield* line(`at least ${rows}`, yield* measure(tollgate, short, seconds))
  }

  yield* title("replicas, sharing core 0")
  yield* line("1", yield* measure(tollgate, short, seconds))
  const second = yield* contenders.tollgate(url, stores)
  const both = { ...tollgate, url: `${tollgate.url},${second.url}`, key: stores.keys.good }
  yield* measureAsked(both, short, 10)
  yield* line("2 (CPU of one of them)", yield* measureAsked(both, short, seconds))
})

await Effect.runPromise(Effect.scoped(growth))
process.exit(0)
