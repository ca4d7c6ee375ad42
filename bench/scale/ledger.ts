/**
 * One busy key, served by several replicas: each closes its requests in batches, and the batches of one key take turns at its
 * row of the ledger. Each replica is a connection of its own with one batch under way, as in the gateway.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import type { Caller } from "../../src/domain/Caller.ts"
import { completionRow } from "../../src/audit/rows.ts"
import { closeIntents } from "../../src/audit/statements.ts"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { durable, makePostgresClusterWith } from "../../test/support/servers/PostgresCluster.ts"
import { endOf, intentOf, usageOf, callerOf } from "../../test/support/records.ts"
import { figure, type Say } from "./report.ts"

const seconds = 3

const rowsOf = (caller: Caller, size: number) =>
  Array.from({ length: size }, () => completionRow(endOf(intentOf({ caller }), usageOf(7, 3))))

export const ledger = Effect.fnUntraced(function* (say: Say) {
  const cluster = yield* makePostgresClusterWith({
    ...durable,
    shared_buffers: "512MB",
    max_wal_size: "4GB"
  })
  const database = (maxConnections: number) =>
    layerPostgres({ url: cluster.socket("postgres"), maxConnections })
  yield* Effect.provide(migrate, database(1))
  for (const replicas of [1, 4, 16]) {
    for (const [name, one] of [
      ["one key", true],
      ["a key each", false]
    ] as const) {
      for (const size of [1, 100]) {
        const busy = callerOf()
        const done = yield* Effect.gen(function* () {
          const pg = yield* PgClient.PgClient
          const until = performance.now() + seconds * 1000
          const closer = Effect.gen(function* () {
            const mine = one ? busy : callerOf()
            let batches = 0
            while (performance.now() < until) {
              yield* closeIntents(pg)(rowsOf(mine, size))
              batches += 1
            }
            return batches
          })
          return yield* Effect.all(
            Array.from({ length: replicas }, () => closer),
            { concurrency: "unbounded" }
          )
        }).pipe(Effect.provide(database(replicas)))
        const batches = done.reduce((sum, count) => sum + count, 0)
        yield* say(
          figure(`${replicas} replicas, ${name}, ${size} requests a batch`, [
            `${Math.round(batches / seconds)} batches a second`,
            `${Math.round((batches * size) / seconds)} requests a second`
          ])
        )
      }
    }
  }
})
