/** What the books say of a run: limits that were overrun, refusals that were wrong, requests without a row, corrections. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { SqlError } from "effect/sql/SqlError"

const decodeCount = Schema.decodeUnknownEffect(Schema.Tuple([Schema.Struct({ n: Schema.Finite })]))
/** The number `n` that a query has. */
export const count = (query: (pg: PgClient.PgClient) => Effect.Effect<ReadonlyArray<unknown>, SqlError>) =>
  Effect.flatMap(PgClient.PgClient, (pg) => Effect.flatMap(query(pg), decodeCount)).pipe(
    Effect.map(([{ n }]) => n),
    Effect.orDie
  )

/** Rate refusals before which, in the longest time a window can reach back, the key had not had its rpm. */
export const wronglyRefused = (prefix: string, rpm: number) =>
  count(
    (pg) => pg`
      SELECT count(*)::float8 AS n FROM audit_log a
      WHERE a.key_prefix = ${prefix} AND a.error_type = 'rate_limit_exceeded' AND (
        SELECT count(*) FROM admissions d WHERE d.key_id = a.key_id
          AND d.admitted_at > a.arrived_at - interval '60.6 seconds' AND d.admitted_at <= a.completed_at) < ${rpm}`
  )

/** Requests the model server got that have no audit row, of all that it got. */
export const unaudited = (seen: ReadonlySet<number>) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`SELECT DISTINCT client_request_id AS id FROM audit_log WHERE client_request_id IS NOT NULL`
  ).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))),
    Effect.map((rows) => {
      const audited = new Set(rows.map(({ id }) => Number(id)))
      return [...seen].filter((number) => !audited.has(number)).length
    }),
    Effect.orDie
  )

/** A correction of an audit row. */
export interface Correction {
  /** epoch ms, by the clock of the database */
  readonly at: number
  /** `taken`: another process had closed the request as aborted; `late`: the client had a 503 because the row was late */
  readonly why: "taken" | "late"
}

const decodeCorrections = Schema.decodeUnknownEffect(
  Schema.Array(Schema.Struct({ at: Schema.Finite, why: Schema.Literals(["taken", "late"]) }))
)

/** All corrections. An audit row is corrected at most once, for one of two reasons (`src/audit/corrections.ts`). */
export const allCorrections: Effect.Effect<
  ReadonlyArray<Correction>,
  never,
  PgClient.PgClient
> = Effect.flatMap(
  PgClient.PgClient,
  (pg) => pg`
      SELECT (extract(epoch FROM c.corrected_at) * 1000)::float8 AS at,
        CASE WHEN a.error_type = 'aborted' THEN 'taken' WHEN c.status = 503 THEN 'late' END AS why
      FROM audit_corrections c LEFT JOIN audit_log a USING (request_id) ORDER BY 1`
).pipe(Effect.flatMap(decodeCorrections), Effect.orDie)

/** Tokens the ledger has for a key. */
export const spentOf = (prefix: string) =>
  count(
    (pg) => pg`SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n
      FROM ledger JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}`
  )

/** The most tokens of a key in any 60 seconds. Only for short requests: their tokens are taken for used when admitted. */
export const tokensInMinute = (prefix: string) =>
  count(
    (pg) => pg`
      SELECT coalesce(max(n), 0)::float8 AS n FROM (
        SELECT sum(a.tokens_in + a.tokens_out) OVER (PARTITION BY d.key_id ORDER BY d.admitted_at RANGE BETWEEN
          CURRENT ROW AND interval '59.9 seconds' FOLLOWING) AS n
        FROM admissions d JOIN audit_log a USING (request_id) WHERE a.key_prefix = ${prefix}) AS spans`
  )
