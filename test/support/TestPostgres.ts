/**
 * A database of one's own on the run's Postgres, or a whole Postgres of one's own to stop, freeze and kill.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { randomBytes } from "node:crypto"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { inject } from "vitest"
import { layerPostgres, type PostgresOptions, type SocketAddress } from "../../src/infra/Postgres.ts"
import { makePostgresClusterWith, type PostgresCluster } from "./servers/PostgresCluster.ts"

export class TestDatabase extends Context.Service<
  TestDatabase,
  {
    readonly name: string
    /** DATABASE_URL for a child process */
    readonly url: Redacted.Redacted
    readonly socket: SocketAddress
  }
>()("test/TestDatabase") {}

const freshName = () => `t_${randomBytes(8).toString("hex")}`

const cloned = Effect.gen(function* () {
  const { port, socketPath, template, username } = inject("postgres")
  const name = freshName()
  yield* Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`CREATE DATABASE ${sql(name)} TEMPLATE ${sql(template)}`
  ).pipe(
    Effect.provide(
      layerPostgres({
        url: { path: socketPath, database: "postgres", username },
        maxConnections: 1,
        statementTimeoutMs: 30_000
      })
    )
  )
  return {
    name,
    url: Redacted.make(`postgres://${username}@127.0.0.1:${port}/${name}`),
    socket: { path: socketPath, database: name, username }
  }
})

/** A fresh migrated database, without a client: for tests that start a child process. */
export const layerTestDatabase: Layer.Layer<TestDatabase, SqlError> = Layer.effect(TestDatabase, cloned)

/**
 * A fresh migrated database with a client on it, which waits long for a statement: a busy machine is no fault. Each build of
 * the layer makes another database.
 */
export const layerTestPostgres = (
  options: Omit<PostgresOptions, "url"> = {}
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient | TestDatabase, SqlError> =>
  Layer.unwrap(
    Effect.map(TestDatabase, (database) =>
      layerPostgres({ statementTimeoutMs: 20_000, ...options, url: database.socket })
    )
  ).pipe(Layer.provideMerge(Layer.fresh(layerTestDatabase)))

/** The default: most tests want just this. */
export const TestPostgres = layerTestPostgres()

/** The controls of a private Postgres, see `PostgresCluster`. */
export class TestCluster extends Context.Service<TestCluster, PostgresCluster>()("test/TestCluster") {}

/**
 * A private Postgres, migrated, with a client on it: for faults. `switches` are settings of the server,
 * beside those of all test servers.
 */
export const layerPrivatePostgres = (
  options: Omit<PostgresOptions, "url"> = {},
  switches: Readonly<Record<string, string>> = {}
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient | TestDatabase | TestCluster, unknown> => {
  const database = Layer.effect(
    TestDatabase,
    Effect.map(TestCluster, (cluster) => {
      const name = "postgres"
      return { name, url: cluster.url(name), socket: cluster.socket(name) }
    })
  )
  return Layer.unwrap(
    Effect.map(TestDatabase, ({ socket }) => layerPostgres({ ...options, url: socket }))
  ).pipe(
    Layer.provideMerge(database),
    Layer.provideMerge(
      Layer.fresh(
        Layer.effect(
          TestCluster,
          Effect.suspend(() => makePostgresClusterWith(switches, { from: inject("postgres").prepared }))
        )
      )
    )
  )
}
