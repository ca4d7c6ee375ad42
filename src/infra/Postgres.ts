/**
 * The connection pool to Postgres. The layer builds while the database is down. The server itself cancels a statement that
 * takes too long (`statement_timeout`).
 *
 * A server that does not answer at all does not cancel anything: put `timeoutDetached` (`time.ts`) around statements that
 * decide about a request.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Data, type Duration, Effect, Layer, Redacted, Result, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { makeCurrentUrl } from "./currentUrl.ts"
import { oneRow } from "./rows.ts"
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
const tlsOf = (url: Redacted.Redacted) => Result.getOrElse(readPostgresTls(Redacted.value(url)), () => true)

export const layerPostgres = (
  options: PostgresOptions
): Layer.Layer<PgClient.PgClient | SqlClient.SqlClient, SqlError> =>
  PgClient.layerFrom(
    Effect.gen(function* () {
      const { url: address } = options
      const current = Redacted.isRedacted(address) ? yield* makeCurrentUrl(address) : undefined
      return yield* PgClient.make({
        ...(Redacted.isRedacted(address) ? { ssl: tlsOf(address) } : address),
        /** It is read for each connection. */
        get url() {
          return current?.()
        },
        maxConnections: options.maxConnections ?? 10,
        connectTimeout: options.connectTimeout ?? "3 seconds",
        keepAlive: "10 seconds",
        applicationName: options.applicationName ?? "tollgate",
        startupParameters: {
          statement_timeout: String(options.statementTimeoutMs ?? 2000),
          // Releases the locks of a process that stops between BEGIN and COMMIT.
          idle_in_transaction_session_timeout: "30000",
          ...byIndex,
          ...uncompiled,
          timezone: "UTC"
        }
      })
    })
  )

/** Transactions may not write: a standby, or `default_transaction_read_only`. */
export class ReadOnly extends Data.TaggedError("ReadOnly") {
  readonly code = "25006"
  override readonly message = "transactions are read-only"
}

/**
 * Writes as requests do, and leaves nothing behind: no row, so nothing to vacuum, no lock, and no right is needed.
 *
 * - 100 KB go to a temporary file, in the tablespace of the tables. On a full disk rows that fit into free pages are still written,
 *   and rows that need a new page are not; a temporary file always needs new blocks. It comes first, so that a probe
 *   does not use up what the log has left: without room for its log Postgres ends.
 * - A message in the write-ahead log makes the commit wait for the disk, and for a synchronous standby.
 */
export const probeWrites = (sql: SqlClient.SqlClient) =>
  oneRow({ readOnly: Schema.Boolean })(sql`
    SELECT CASE WHEN p.off THEN true ELSE pg_logical_emit_message(true, 'tollgate', '') IS NULL END AS "readOnly"
    FROM (SELECT set_config('work_mem', '64kB', true) AS memory,
        current_setting('transaction_read_only')::boolean AS off OFFSET 0) AS p,
      unnest(array_fill(repeat(p.memory, 2000), ARRAY[13])) AS spilled
    GROUP BY p.off`).pipe(Effect.flatMap(({ readOnly }) => (readOnly ? new ReadOnly() : Effect.void)))
