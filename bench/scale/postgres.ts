/**
 * Two Postgres: a primary and a standby that streams from it. What a synchronous standby adds to a batch, how far the standby
 * is behind, whether a failover loses rows; and what a row of the audit takes as a compressed file.
 */
import { chmod, cp, rm, stat, writeFile } from "node:fs/promises"
import { spawn } from "node:child_process"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { completionRow } from "../../src/audit/rows.ts"
import { closeIntents, insertIntents } from "../../src/audit/statements.ts"
import { postgresBinaries } from "../../src/infra/embedded/PostgresBinaries.ts"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { intentRowOf } from "../../test/support/permits.ts"
import { callerOf, endOf, intentOf, usageOf } from "../../test/support/records.ts"
import {
  durable,
  makePostgresClusterWith,
  nobody,
  testUser
} from "../../test/support/servers/PostgresCluster.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { at, figure, type Say } from "./report.ts"

const batches = 400
const batchSize = 10
const archived = 300_000

const root = process.getuid?.() === 0

/** As an operator's psql: none of the gateway's settings and deadlines. */
const plainly = (port: number) =>
  PgClient.layer({
    url: Redacted.make(`postgres://${testUser}@127.0.0.1:${port}/postgres`),
    maxConnections: 1
  })

/** A copy of the stopped primary's data, started as a standby that streams from it. */
const makeStandby = Effect.fnUntraced(function* (primary: { readonly data: string; readonly port: number }) {
  const data = `${primary.data}-standby`
  const port = yield* freePort
  yield* Effect.promise(async () => {
    await cp(primary.data, data, { recursive: true })
    await chmod(data, 0o700)
    await rm(path.join(data, "postmaster.pid"), { force: true })
    await writeFile(path.join(data, "standby.signal"), "")
    if (!root) return
    const own = spawn("chown", ["-R", `${nobody.uid}:${nobody.gid}`, data])
    await new Promise((resolve) => own.once("exit", resolve))
  })
  const { libraries, native } = yield* postgresBinaries(path.join(path.dirname(data), "libraries"))
  const start = Effect.sync(() =>
    spawn(
      path.join(native, "bin/postgres"),
      `-D ${data} -k ${path.dirname(data)} -p ${port} -c listen_addresses=127.0.0.1 -c max_connections=200`
        .split(" ")
        .concat("-c", `primary_conninfo=host=127.0.0.1 port=${primary.port} user=${testUser}`),
      {
        stdio: "ignore",
        env: { ...process.env, LD_LIBRARY_PATH: `${libraries}:${native}/lib` },
        ...(root ? nobody : {})
      }
    )
  )
  const stop = (child: ReturnType<typeof spawn>) =>
    Effect.andThen(
      Effect.callback<void>((resume) => {
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGINT")
      }),
      Effect.promise(() => rm(data, { recursive: true, force: true }))
    )
  return { port, start: Effect.acquireRelease(start, stop) }
})

/** Milliseconds that each batch of intents and of ends took, in order of size. */
const write = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const caller = callerOf()
  const [opened, closed]: [Array<number>, Array<number>] = [[], []]
  for (let n = 0; n < batches; n++) {
    const intents = Array.from({ length: batchSize }, () => intentOf({ caller }))
    let began = performance.now()
    yield* insertIntents(pg, 30)(intents.map(intentRowOf))
    opened.push(performance.now() - began)
    began = performance.now()
    yield* closeIntents(pg)(intents.map((intent) => completionRow(endOf(intent, usageOf(7, 3)))))
    closed.push(performance.now() - began)
  }
  return [opened, closed].map((times) => times.sort((a, b) => a - b))
})

const sayWrites = Effect.fnUntraced(function* (say: Say, name: string) {
  const [opened = [], closed = []] = yield* write
  const times = (sorted: ReadonlyArray<number>) =>
    `${at(sorted, 0.5).toFixed(2)} / ${at(sorted, 0.99).toFixed(2)} ms`
  yield* say(
    figure(`${name}, batches of ${batchSize}, p50 / p99`, [
      `intents ${times(opened)}`,
      `audit rows and ledger ${times(closed)}`
    ])
  )
})

const rowsIn = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ rows: number }>`SELECT count(*)::float8 AS rows FROM audit_log`
  return row?.rows ?? Number.NaN
})

export const postgres = Effect.fnUntraced(function* (say: Say) {
  const cluster = yield* makePostgresClusterWith({
    ...durable,
    wal_level: "replica",
    max_wal_size: "4GB",
    shared_buffers: "256MB"
  })
  const gateway = layerPostgres({ url: cluster.socket("postgres"), maxConnections: 2 })
  yield* Effect.provide(migrate, gateway)
  yield* Effect.provide(sayWrites(say, "one Postgres"), gateway)

  yield* cluster.stop
  const data = path.join(path.dirname(cluster.socketPath), "data")
  const standby = yield* makeStandby({ data, port: cluster.port })
  yield* cluster.start
  yield* standby.start
  const settings = (...lines: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      for (const line of lines) yield* sql.unsafe(line)
      yield* sql`SELECT pg_reload_conf()`
      yield* Effect.sleep("1 second")
    }).pipe(Effect.provide(plainly(cluster.port)))
  const streaming = Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [row] = yield* sql`SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'`
    if (row === undefined) return yield* Effect.fail("no standby")
  }).pipe(
    Effect.provide(plainly(cluster.port)),
    Effect.retry({ schedule: Schedule.spaced("200 millis"), times: 100 })
  )
  yield* streaming
  yield* Effect.provide(sayWrites(say, "a standby that is not waited for"), gateway)
  yield* settings("ALTER SYSTEM SET synchronous_standby_names = '*'")
  yield* Effect.provide(sayWrites(say, "a synchronous standby"), gateway)

  const onPrimary = yield* Effect.provide(rowsIn, plainly(cluster.port))
  const onStandby = yield* Effect.provide(rowsIn, plainly(standby.port))
  yield* cluster.kill
  const began = performance.now()
  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`SELECT pg_promote()`
  }).pipe(Effect.provide(plainly(standby.port)))
  const after = yield* Effect.provide(rowsIn, plainly(standby.port))
  yield* say(
    figure("failover with a synchronous standby", [
      `${onPrimary} rows on the primary, ${onStandby} on the standby at the same time, ${after} after kill -9 of the primary`,
      `promoted in ${Math.round(performance.now() - began)} ms`
    ])
  )

  yield* Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
        streamed, tokens_in, tokens_out, usage_source, status, latency_ms, client_ip)
      SELECT uuidv7(interval '1 ms' * n), now() + interval '1 ms' * n, now() + interval '1 ms' * n,
        md5((k % 100)::text)::uuid, md5(k::text)::uuid, 'tg_' || lpad(k::text, 9, '0'), 'POST', '/api/chat', 'model-' || k % 10,
        n % 2 = 0, 7 + n % 900, 30 + n % 500, 'backend', 200, n % 20000, '192.0.2.' || k % 200
      FROM (SELECT n, floor(1000 * power(random(), 3))::int AS k FROM generate_series(1, ${archived}::int) AS n) AS g`
    yield* sql`VACUUM (ANALYZE) audit_log`
    const [month] = yield* sql<{ name: string; bytes: number }>`
      SELECT name, bytes::float8 FROM audit_partitions ORDER BY bytes DESC LIMIT 1`
    const name = month?.name ?? ""
    const file = path.join(path.dirname(data), "month.csv.gz")
    let started = performance.now()
    yield* sql.unsafe(`COPY ${name} TO PROGRAM 'gzip -6 > ${file}' WITH (FORMAT csv, HEADER)`)
    const copied = performance.now() - started
    const { size } = yield* Effect.promise(() => stat(file))
    started = performance.now()
    yield* sql.unsafe(`ALTER TABLE audit_log DETACH PARTITION ${name}`)
    yield* sql.unsafe(`DROP TABLE ${name}`)
    const dropped = performance.now() - started
    const rows = after + archived
    yield* say(
      figure(`a month of ${rows} audit rows`, [
        `${Math.round((month?.bytes ?? 0) / rows)} bytes a row in Postgres with indexes`,
        `${Math.round(size / rows)} bytes a row as compressed CSV`,
        `written in ${Math.round((1e6 * copied) / rows / 1000)} µs a row`,
        `detached and dropped in ${Math.round(dropped)} ms`
      ])
    )
  }).pipe(Effect.provide(plainly(standby.port)))
})
