import { assert, it } from "@effect/vitest"
import * as path from "node:path"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { layerPostgres, probeWrites } from "../../../src/infra/Postgres.ts"
import { layerPrivatePostgres, TestCluster, TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { eventually } from "../../support/wait.ts"
import { sql } from "../../support/sql.ts"

const planOf = Effect.fnUntraced(function* (statement: string) {
  const sql = yield* SqlClient.SqlClient
  const lines = yield* sql<{ readonly "QUERY PLAN": string }>`EXPLAIN ${sql.literal(statement)}`
  return lines.map((line) => line["QUERY PLAN"]).join("\n")
})

const test = testWith(it.live, TestPostgres)

test("when a table is empty now, then its statements are planned as for a large one", function* () {
  const plan = yield* planOf(
    "SELECT * FROM audit_log WHERE request_id = '00000000-0000-0000-0000-000000000000'"
  )
  assert.match(plan, /audit_log_default_pkey/)
  assert.notMatch(plan, /Seq Scan/)
})

test("when a plan without an index is expensive, then it is still not compiled", function* () {
  yield* sql`SET jit_above_cost = 0`
  assert.notMatch(yield* planOf("SELECT count(*) FROM audit_log WHERE latency_ms > 1"), /JIT/)
  assert.deepStrictEqual(yield* sql`SHOW jit`, [{ jit: "off" }])
})

testWith(it.live, layerPrivatePostgres({ maxConnections: 1 }))(
  "when the URL names the folder of a socket, then no connection goes over the network",
  function* () {
    const cluster = yield* TestCluster
    const url = new URL(Redacted.value(cluster.url("postgres")))
    url.searchParams.set("host", path.dirname(cluster.socketPath))
    const address = sql`SELECT coalesce(host(inet_client_addr()), 'socket') AS from`
    const bySocket = Layer.fresh(layerPostgres({ url: Redacted.make(url.href), maxConnections: 1 }))
    const byNetwork = Layer.fresh(layerPostgres({ url: cluster.url("postgres"), maxConnections: 1 }))
    assert.deepStrictEqual(yield* Effect.provide(address, bySocket), [{ from: "socket" }])
    assert.deepStrictEqual(yield* Effect.provide(address, byNetwork), [{ from: "127.0.0.1" }])
  }
)

test("when it is probed by a write, then the log has it, a disk had room, nothing stays, and no setting changes", function* () {
  const sql = yield* SqlClient.SqlClient
  const facts = sql<{ readonly lsn: number; readonly size: number }>`
    SELECT (pg_current_wal_insert_lsn() - '0/0')::float8 AS lsn,
      (SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r')::float8 AS size`
  const spilled = sql<{ readonly bytes: number }>`SELECT temp_bytes::float8 AS bytes FROM pg_stat_database
    WHERE datname = current_database()`
  yield* probeWrites(sql)
  const [before] = yield* facts
  for (let n = 0; n < 20; n += 1) yield* probeWrites(sql)
  const [after] = yield* facts
  // How much it writes cannot be seen here: other tests write into the same log.
  assert.isAbove(after?.lsn ?? 0, before?.lsn ?? 0)
  assert.strictEqual(after?.size, before?.size)
  assert.deepStrictEqual(yield* sql`SHOW work_mem`, [{ work_mem: "4MB" }])
  const [row] = yield* eventually(spilled, ([one]) => (one?.bytes ?? 0) >= 21 * 100_000)
  assert.isAtLeast(row?.bytes ?? 0, 21 * 100_000)
})
