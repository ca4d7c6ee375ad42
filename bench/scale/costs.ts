/** What one request costs each part, and what it leaves behind: CPU, commits, WAL, rows, and bytes in Redis. */
import { Redis } from "ioredis"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as contenders from "../gateway/contenders.ts"
import { plainly } from "../gateway/log.ts"
import { measureAsked } from "../gateway/measure.ts"
import { costOf, costOfPid } from "../gateway/processes.ts"
import { table } from "../gateway/works.ts"
import { figure, type Say } from "./report.ts"

const seconds = 8
const keys = 1000

/** Of a store so far. */
interface Reading {
  readonly cpu: { readonly gateway: number; readonly postgres: number; readonly redis: number }
  readonly wal: number
  readonly commits: number
  readonly rows: number
  readonly audit: number
  readonly ledger: number
  readonly redisBytes: number
  readonly redisKeys: number
}

const read = Effect.fnUntraced(function* (redis: Redis, gateway: contenders.Contender) {
  const sql = yield* SqlClient.SqlClient
  // What the gateway has written and not yet reported is on its way: the counters of Postgres are a second late.
  yield* Effect.sleep("1500 millis")
  yield* sql`SELECT pg_stat_force_next_flush()`
  const [row] = yield* sql<Record<string, number>>`
    SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int AS pid,
      pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS wal,
      (SELECT sum(xact_commit)::float8 FROM pg_stat_database) AS commits,
      (SELECT count(*)::float8 FROM audit_log) AS rows,
      (SELECT sum(pg_total_relation_size(inhrelid))::float8 FROM pg_inherits WHERE inhparent = 'audit_log'::regclass) AS audit,
      pg_total_relation_size('ledger')::float8 AS ledger`
  const info = yield* Effect.promise(() => redis.info())
  const of = (field: string) => Number(new RegExp(`^${field}:(\\d+)`, "m").exec(info)?.[1])
  const { pid = 0, wal = 0, commits = 0, rows = 0, audit = 0, ledger = 0 } = row ?? {}
  const reading: Reading = {
    cpu: {
      gateway: costOf(gateway.child).cpu,
      postgres: costOfPid(pid).cpu,
      redis: costOfPid(of("process_id")).cpu
    },
    wal,
    commits,
    rows,
    audit,
    ledger,
    redisBytes: of("used_memory"),
    redisKeys: yield* Effect.promise(() => redis.dbsize())
  }
  return reading
})

export const costs = Effect.fnUntraced(function* (say: Say) {
  const stores = yield* contenders.makeStores(keys - 1, { shared_buffers: "512MB", max_wal_size: "4GB" })
  const { url } = yield* contenders.backend
  const gateway = yield* contenders.tollgate(url, stores)
  const redis = yield* Effect.acquireRelease(
    Effect.sync(() => new Redis(stores.redisUrl)),
    (client) => Effect.sync(() => client.disconnect())
  )
  const all = [stores.keys.good, ...stores.keys.others].join(",")
  yield* Effect.gen(function* () {
    // The first use of each key is an argon2 verify: that is not what is measured here.
    yield* measureAsked({ ...gateway, key: all }, { ...table.json32, connections: 4 }, 25)
    for (const [name, key] of [
      ["1 key", stores.keys.good],
      [`${keys} keys`, all]
    ] as const) {
      for (const connections of [32, 96]) {
        const before = yield* read(redis, gateway)
        const { rps } = yield* measureAsked({ ...gateway, key }, { ...table.json32, connections }, seconds)
        const after = yield* read(redis, gateway)
        const requests = after.rows - before.rows
        const each = (of: (reading: Reading) => number, digits = 0) =>
          ((of(after) - of(before)) / requests).toFixed(digits)
        yield* say(
          figure(`${name}, ${connections} connections, ${rps.toFixed(0)} requests a second`, [
            `gateway ${each(({ cpu }) => cpu.gateway * 1e6)} µs`,
            `Postgres ${each(({ cpu }) => cpu.postgres * 1e6)} µs`,
            `Redis ${each(({ cpu }) => cpu.redis * 1e6)} µs`,
            `${each(({ commits }) => commits, 3)} commits`,
            `WAL ${each(({ wal }) => wal)} bytes`,
            `audit ${each(({ audit }) => audit)} bytes with indexes`,
            `Redis ${each(({ redisBytes }) => redisBytes)} bytes in ${each(({ redisKeys }) => redisKeys, 2)} keys`
          ])
        )
      }
    }
  }).pipe(Effect.provide(plainly(stores)))
})
