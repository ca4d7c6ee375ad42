/** Rows of tenants and keys in a form that no command writes. */
import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { KeyAttributes, TenantAttributes } from "../../src/domain/attributes.ts"
import { snakeCase } from "../../src/domain/text.ts"
import { sql } from "./sql.ts"

/** Every column that is read of both tables, but for those that name a row. A new setting is among them by itself. */
export const readColumns: ReadonlyArray<readonly [table: "tenants" | "api_keys", column: string]> = [
  ["tenants", "created_at"],
  ...Object.keys(TenantAttributes.fields).map((field) => ["tenants", snakeCase(field)] as const),
  ["api_keys", "created_at"],
  ["api_keys", "expires_at"],
  ["api_keys", "scopes"],
  ["api_keys", "status"],
  ...Object.keys(KeyAttributes.fields).map((field) => ["api_keys", snakeCase(field)] as const)
]

/** Takes away what keeps odd rows out of the database. */
export const dropChecks = sql`
    DO $$ DECLARE one record; BEGIN
      FOR one IN SELECT conrelid::regclass AS owner, conname FROM pg_constraint
        WHERE contype = 'c' AND conrelid IN ('tenants'::regclass, 'api_keys'::regclass)
      LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.owner, one.conname); END LOOP;
      FOR one IN SELECT attrelid::regclass AS owner, attname FROM pg_attribute
        WHERE attrelid IN ('tenants'::regclass, 'api_keys'::regclass) AND attnum > 0 AND attnotnull
          AND attname NOT IN ('id', 'name', 'tenant_id', 'prefix')
      LOOP EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL', one.owner, one.attname); END LOOP;
    END $$`

/** For each type of a column one of them is no value that a setting may have. */
const oddValues = ["NULL", "'-1'", "'a b'", "'infinity'", `'{"a":5}'`, "'{NULL}'"]

/**
 * Gives the column of one row an odd value while `use` runs, for each value that Postgres accepts. Returns what `use` returned
 * for each of them.
 */
export const withOddValues = Effect.fnUntraced(function* <A, E, R>(
  table: string,
  column: string,
  row: string,
  use: Effect.Effect<A, E, R>
) {
  const sql = yield* SqlClient.SqlClient
  const set = (value: string) =>
    sql`UPDATE ${sql.literal(table)} SET ${sql.literal(`${column} = ${value}`)} WHERE ${sql.literal(row)}`
  const [before] = yield* sql<{ value: string | null }>`
    SELECT quote_nullable(${sql.literal(column)}) AS value FROM ${sql.literal(table)} WHERE ${sql.literal(row)}`
  const results: Array<A> = []
  for (const value of oddValues) {
    if (Exit.isFailure(yield* Effect.exit(set(value)))) continue
    results.push(yield* use)
  }
  yield* set(before?.value ?? "NULL")
  return results
})
