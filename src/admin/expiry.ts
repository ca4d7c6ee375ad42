/** When a new key ends: never, after a lifetime by the database's clock, or at a time in the future. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { InvalidValue } from "./Errors.ts"
import type { NewKey } from "./Registry.ts"
import * as Values from "./Values.ts"

/** Year 10000. Later dates have another text format. */
const lastInstantMs = 253_402_300_800_000

/** Returns a fragment of SQL: a timestamptz or null. */
export const expiryOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { expiresAt, expiresInMs }: Pick<NewKey, "expiresAt" | "expiresInMs">
) {
  if (expiresInMs !== undefined && expiresAt !== undefined) {
    return yield* new InvalidValue({ field: "expires-at", expected: "left out when --expires-in is given" })
  }
  if (expiresInMs !== undefined) {
    const lifetime = yield* Values.validate("expires-in", Values.lifetimeMs, expiresInMs)
    return sql`now() + ${lifetime}::float8 * interval '1 millisecond'`
  }
  if (expiresAt === undefined) return sql`NULL::timestamptz`
  const inFuture =
    expiresAt.getTime() < lastInstantMs
      ? yield* sql`SELECT 1 WHERE ${expiresAt.toISOString()}::timestamptz > now()`
      : []
  if (inFuture.length === 0) {
    return yield* new InvalidValue({
      field: "expires-at",
      expected: "a time in the future, before the year 10000"
    })
  }
  return sql`${expiresAt.toISOString()}::timestamptz`
})
