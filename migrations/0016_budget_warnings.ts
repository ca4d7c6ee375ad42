import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Thresholds of budgets that were announced: a row lets one replica announce it, once for each period and budget. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS budget_warnings (
      scope text NOT NULL CHECK (scope IN ('key', 'tenant')),
      -- the account of the key, or the tenant
      owner uuid NOT NULL,
      period text NOT NULL CHECK (period IN ('day', 'month', 'total')),
      -- which day or month
      counter text NOT NULL,
      budget bigint NOT NULL,
      threshold integer NOT NULL,
      -- tokens when it was announced
      spent bigint NOT NULL,
      at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (owner, scope, period, counter, budget, threshold)
    )`
})
