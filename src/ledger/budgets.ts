/** All budgets of some owners in SQL, with what the ledger counts of each: for the gauges, and for warnings. */
import type { SqlClient, Statement } from "effect/sql"
import type { Day } from "../domain/Calendar.ts"
import { daysOf, since, sumsByPeriod } from "./periods.ts"

/** The budgets in a row of `tenants` or `api_keys`, in the columns of an owner. */
export const ownBudgets = (sql: SqlClient.SqlClient) =>
  sql`extra_budget AS extra, budget_daily AS day, budget_weekly AS week, budget_monthly AS month, budget_total AS total`

/**
 * The `WITH` of a statement, which gives it `budgets`: for each owner and period with a budget the columns of the owner, `period`,
 * its dates `begins` and `ends`, the tokens `used`, and the `budget` with what an extra budget adds (`extraOf` in domain/Limits.ts).
 * `owners`: a query, whose rows have `ownBudgets` and are of one `tenant`, of an account by its `keys`, of its use of one `model`
 * (a budget of a day), or of one `user_account`. All days are only read of an owner with something that counts all of them.
 */
export const withBudgets = (sql: SqlClient.SqlClient, day: Day, owners: Statement.Fragment) => sql`
  WITH at AS MATERIALIZED (${daysOf(sql, day)}), owners AS MATERIALIZED (${owners}), budgets AS (
    SELECT o.*, p.period, p.begins, p.ends, p.used, p.own +
      CASE WHEN (o.extra ->> 'until')::timestamptz > now()
        THEN greatest(0, least((o.extra ->> 'tokens')::float8, (o.extra ->> 'upTo')::float8 - (s.total - p.used)))
        ELSE 0 END AS budget
    FROM at CROSS JOIN owners o CROSS JOIN LATERAL (
      SELECT CASE WHEN o.model IS NOT NULL THEN ${sql.literal(since.day)}
        WHEN o.total IS NULL AND o.extra IS NULL THEN ${sql.literal(since.month)} ELSE ${sql.literal(since.total)} END AS day
    ) f CROSS JOIN LATERAL (
      SELECT ${sumsByPeriod(sql, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })} FROM (
        SELECT l.day, l.tokens_in, l.tokens_out FROM ledger l WHERE l.tenant_id = o.tenant AND l.day >= f.day
        UNION ALL
        SELECT l.day, l.tokens_in, l.tokens_out FROM ledger l WHERE l.key_id = ANY (o.keys) AND o.model IS NULL AND l.day >= f.day
        UNION ALL
        SELECT l.day, l.tokens_in, l.tokens_out FROM usage_daily l
        WHERE l.key_id = ANY (o.keys) AND l.model IN (o.model, o.model || ':latest') AND l.day >= f.day
        UNION ALL
        SELECT l.day, l.tokens_in, l.tokens_out FROM user_ledger l WHERE l.user_account = o.user_account AND l.day >= f.day
      ) l
    ) s CROSS JOIN LATERAL (VALUES
      ('day', at.day, at.day_to, o.day, s.day), ('week', at.week, at.week_to, o.week, s.week),
      ('month', at.month, at.month_to, o.month, s.month), ('total', '-infinity', NULL, o.total, s.total)
    ) p (period, begins, ends, own, used)
    WHERE num_nonnulls(o.day, o.week, o.month, o.total) > 0 AND p.own IS NOT NULL
  )`
