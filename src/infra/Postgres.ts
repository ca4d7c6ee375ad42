/**
 * The connection pool to Postgres. The layer builds while the database is down. The server itself cancels a statement that
 * takes too long (`statement_timeout`).
 *
 * A server that does not answer at all does not cancel anything: put `timeoutDetached` (`time.ts`) around statements that
 * decide about a request.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { type Duration, type Layer, Redacted, Result } from "effect"
import type { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { readPostgresTls } from "./tls.ts"

/** A Postgres on this machine, by the path of its socket file. */
export interface SocketAddress {
  readonly path: string
  readonly database: string
  readonly username: string
}

/** The address of the database: a `postgres://` URL, or a local socket. */
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
 * Our statements look up few rows by key. Postgres plans a prepared statement once, and on the first day the tables are
 * empty. Without these settings the plan would read whole tables until the first ANALYZE (40,000 rows in the log: 10 ms for
 * a statement that takes 0.6 ms).
 */
const byIndex = { enable_seqscan: "off", enable_hashjoin: "off", enable_mergejoin: "off" }

/**
 * A precaution. When a discouraged plan is the only one, its cost looks so high to Postgres before 18 that it compiles the
 * statement first: 125 ms for a statement of 0.07 ms (measured with 15). None of our statements is affected now.
 */
const uncompiled = { jit: "off" }

/** The settings refuse parameters that cannot be used. Should one come here, TLS with the CAs of the machine is demanded. */
const withTls = (url: Redacted.Redacted) => ({
  url,
  ssl: Result.getOrElse(readPostgresTls(Redacted.value(url)), () => true)
})

export const layerPostgres = (
  options: PostgresOptions
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient, SqlError> => {
  const statementTimeoutMs = options.statementTimeoutMs ?? 2000
  return PgClient.layer({
    ...(Redacted.isRedacted(options.url) ? withTls(options.url) : options.url),
    maxConnections: options.maxConnections ?? 10,
    connectTimeout: options.connectTimeout ?? "3 seconds",
    keepAlive: "10 seconds",
    applicationName: options.applicationName ?? "tollgate",
    startupParameters: {
      statement_timeout: String(statementTimeoutMs),
      // Releases the locks of a process that stops between BEGIN and COMMIT.
      idle_in_transaction_session_timeout: "30000",
      ...byIndex,
      ...uncompiled,
      timezone: "UTC"
    }
  })
}
