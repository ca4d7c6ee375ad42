import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The model of a warning, when the budget is that of a key for one model. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE budget_warnings ADD COLUMN model text`
})
