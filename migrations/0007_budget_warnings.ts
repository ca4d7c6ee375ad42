import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Warnings of budgets that are nearly or wholly spent (`src/admin/budgetWarnings.ts`). */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // One row for each threshold that the use of a budget has reached.
  yield* sql`
    CREATE TABLE budget_warnings (
      -- the receiver knows by it what it has already
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      -- the tenant, the account of the key, or that of the end user
      owner uuid NOT NULL,
      tenant_id uuid NOT NULL,
      -- null: the budget of a tenant
      key_id uuid,
      -- null: the budget of a key or a tenant
      user_account uuid,
      period text NOT NULL CHECK (period IN ('day', 'week', 'month', 'total')),
      begins date NOT NULL,
      -- not included; null: never
      ends date,
      -- percent
      threshold integer NOT NULL,
      budget bigint NOT NULL,
      used bigint NOT NULL,
      found_at timestamptz NOT NULL DEFAULT now(),
      tries integer NOT NULL DEFAULT 0,
      -- null: it is sent or given up
      next_try timestamptz DEFAULT now(),
      sent_at timestamptz,
      -- what became of the last try; null: it was sent, or not tried
      failure text,
      UNIQUE (owner, period, begins, threshold, budget)
    )`
  yield* sql`CREATE INDEX budget_warnings_next_try ON budget_warnings (next_try) WHERE next_try IS NOT NULL`

  // One row: when the budgets were last compared with the ledger. Who compares them holds its lock.
  yield* sql`CREATE TABLE budget_watch (one boolean PRIMARY KEY DEFAULT true CHECK (one), at timestamptz NOT NULL)`
  yield* sql`INSERT INTO budget_watch (at) VALUES ('-infinity')`

  // Which end users have used something today.
  yield* sql`CREATE INDEX IF NOT EXISTS user_ledger_day ON user_ledger (day)`
})
