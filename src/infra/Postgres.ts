/**
 * The connection pool to Postgres. It decides nothing and waits for nobody: the layer builds while the database
 * is down, and a statement the server cannot finish in time is cancelled by the server itself.
 *
 * `statement_timeout` is the server's own bound. A server that does not answer at all is the caller's case: put
 * `Effect.timeout` around what has to decide.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { type Duration, type Layer, Redacted } from "effect"
import type { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"

/** A Postgres on this machine, by the path of its socket file. */
export interface SocketAddress {
  readonly path: string
  readonly database: string
  readonly username: string
  readonly password?: Redacted.Redacted
}

/** Where the database is: a `postgres://` URL, or a local socket. */
export type DatabaseAddress = Redacted.Redacted | SocketAddress

export interface PostgresOptions {
  readonly url: DatabaseAddress
  /** default 10 */
  readonly maxConnections?: number
  /** default 3 s */
  readonly connectTimeout?: Duration.Input
  /** milliseconds, default 2000; 0 means no bound */
  readonly statementTimeoutMs?: number
  /** default "tollgate" */
  readonly applicationName?: string
}

/**
 * Every statement of ours looks up few rows by key. A prepared one is planned once and for all, and on the first day the
 * tables are empty: without this the plan reads them whole, until the first ANALYZE finds that they have grown (measured,
 * 40,000 rows in the log: 10 ms for a statement that takes 0.6).
 */
const byIndex = { enable_seqscan: "off", enable_hashjoin: "off", enable_mergejoin: "off" }

/**
 * What is discouraged and done all the same, because there is no index, looks so dear to a Postgres before 18 that it
 * compiles the statement first: 125 ms for one that takes 0.07 (measured with 15). A precaution: none of ours is one now.
 */
const uncompiled = { jit: "off" }

export const layerPostgres = (
  options: PostgresOptions
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient, SqlError> => {
  const statementTimeoutMs = options.statementTimeoutMs ?? 2000
  return PgClient.layer({
    ...(Redacted.isRedacted(options.url) ? { url: options.url } : options.url),
    maxConnections: options.maxConnections ?? 10,
    connectTimeout: options.connectTimeout ?? "3 seconds",
    keepAlive: "10 seconds",
    applicationName: options.applicationName ?? "tollgate",
    startupParameters: {
      statement_timeout: String(statementTimeoutMs),
      // A process that stops between BEGIN and COMMIT must not keep its locks.
      idle_in_transaction_session_timeout: "30000",
      ...byIndex,
      ...uncompiled,
      timezone: "UTC"
    }
  })
}
