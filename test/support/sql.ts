import { Effect } from "effect"
import { SqlClient, type SqlError, type SqlConnection } from "effect/sql"

/** A statement on the database of the test. */
export const sql = <A extends object = SqlConnection.Row>(
  text: TemplateStringsArray,
  ...values: ReadonlyArray<unknown>
): Effect.Effect<ReadonlyArray<A>, SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.flatMap(SqlClient.SqlClient, (client) => client<A>(text, ...values))
