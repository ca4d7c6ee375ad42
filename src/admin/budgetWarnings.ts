/**
 * Warns of budgets that are nearly or wholly spent, by a POST to `ALERT_WEBHOOK_URL`, once for each budget, period and threshold.
 *
 * Once a minute one of the gateways compares all budgets with the ledger and adds a row for each threshold that is reached. Whatever was
 * missed is found by the next comparison. Every gateway takes rows and sends them, one after the other. To take a row is to set its
 * next try to half a minute later: nobody else has it until then, and what a process that died had taken is tried again.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Schema } from "effect"
import { type Day, TimeZone } from "../domain/Calendar.ts"
import { budgetThresholds } from "../domain/Limits.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"
import { ownBudgets, withBudgets } from "../ledger/budgets.ts"
import { background, jittered } from "../observability/background.ts"
import { Metrics } from "../observability/Metrics.ts"
import { type Delivery, post, type Webhook } from "../observability/webhook.ts"
import { largeRead } from "./rows.ts"
import { hashedIn } from "./users.ts"
import { BudgetWarning, messageOf } from "./warningMessage.ts"

export interface BudgetWarningsOptions extends Pick<Webhook, "secret"> {
  /** `ALERT_WEBHOOK_URL`; undefined: nobody is warned */
  readonly url: Webhook["url"] | undefined
  /** between two comparisons, of all gateways together; the pauses follow from it; default 60,000 */
  readonly everyMs?: number
}

/** Percent of a budget. At 95, the other threshold of the states, there is an alert of the metrics. */
const [nearly] = budgetThresholds
const spent = 100

/** Rows that wait. Those that have no room are found again later. */
const mostPending = 1000
/** With their pauses an hour. */
const mostTries = 8
/** A period is looked at for an hour after its end: requests that it admitted end later. */
const lookBackMs = 3_600_000
/** The newest requests of a key, among which the name of an end user is looked for. */
const searched = 100_000

/**
 * Live tenants, and accounts with a live key (the newest is named), also for models that they used on the day, and end users that used
 * something. A total budget of an account reads all its days, so it is looked at on days on which something of it is used.
 */
const ownersOf = (pg: PgClient.PgClient) => pg`
  WITH live AS MATERIALIZED (
    SELECT DISTINCT ON (a.account) a.account, k.*, t.model_rules AS tenant_rules,
      ARRAY(SELECT o.id FROM api_keys o WHERE o.budget_account = a.account) || a.account AS keys
    FROM api_keys k JOIN tenants t ON t.id = k.tenant_id CROSS JOIN LATERAL (SELECT ${accountOf(pg, "k")} AS account) a
    WHERE k.status = 'active' AND coalesce(k.expires_at > now(), true) AND NOT t.disabled
    ORDER BY a.account, k.created_at DESC
  ), rules AS MATERIALIZED (
    SELECT DISTINCT ON (substring(n.name FROM 8)) substring(n.name FROM 8)::uuid AS user_account, r.value AS rule
    FROM live k CROSS JOIN LATERAL jsonb_each(k.user_rules) r
      CROSS JOIN LATERAL unnest(ARRAY[${hashedIn(pg, pg.literal("r.key"))}, r.key]) n (name)
    WHERE n.name ~ '^sha256:[0-9a-f]{32}$'
    ORDER BY substring(n.name FROM 8), r.key ~ '^sha256:'
  )
  SELECT t.id AS owner, t.id AS tenant_id, t.id AS tenant, NULL::uuid AS key_id, NULL::uuid[] AS keys, NULL::uuid AS user_account,
    NULL::text AS model, ${ownBudgets(pg)}
  FROM tenants t WHERE NOT t.disabled UNION ALL
  SELECT account, tenant_id, NULL, id, keys, NULL, NULL, extra_budget, budget_daily, budget_weekly, budget_monthly,
    CASE WHEN EXISTS (SELECT FROM ledger l WHERE l.key_id = ANY (keys) AND l.day >= at.day) THEN budget_total END
  FROM at CROSS JOIN live UNION ALL
  SELECT md5(k.account::text || ' ' || m.name)::uuid, k.tenant_id, NULL, k.id, k.keys, NULL, m.name, NULL,
    coalesce(k.model_rules -> m.name ->> 'daily', k.tenant_rules -> m.name ->> 'daily')::bigint, NULL, NULL, NULL
  FROM live k JOIN (
    SELECT DISTINCT ${accountOf(pg, "used")} AS account, regexp_replace(u.model, ':latest$', '') AS name
    FROM at JOIN usage_daily u ON u.day >= at.day AND u.day < at.day_to JOIN api_keys used ON used.id = u.key_id
  ) m USING (account) UNION ALL
  SELECT u.user_account, k.tenant_id, NULL, k.id, NULL, u.user_account, NULL, NULL,
    coalesce((r.rule ->> 'daily')::bigint, k.each_user_daily), coalesce((r.rule ->> 'weekly')::bigint, k.each_user_weekly),
    coalesce((r.rule ->> 'monthly')::bigint, k.each_user_monthly), coalesce((r.rule ->> 'total')::bigint, k.each_user_total)
  FROM at JOIN user_ledger u ON u.day >= at.day AND u.day < at.day_to
    JOIN api_keys used ON used.id = u.key_id JOIN live k ON k.account = ${accountOf(pg, "used")}
    LEFT JOIN rules r ON r.user_account = u.user_account`

/** A budget that was raised is warned of again, and one that is what it was is not. */
const find = (pg: PgClient.PgClient, day: Day) => pg`
  ${withBudgets(pg, day, ownersOf(pg))}, reached AS (
    SELECT *, CASE WHEN used >= budget THEN ${spent} ELSE ${nearly} END AS threshold
    FROM budgets WHERE budget > 0 AND used * 100 >= budget * ${nearly}
  )
  INSERT INTO budget_warnings (owner, tenant_id, key_id, user_account, model, period, begins, ends, threshold, budget, used)
  SELECT owner, tenant_id, key_id, user_account, model, period, begins, ends, threshold, budget, used FROM reached r
  WHERE NOT EXISTS (
    SELECT FROM budget_warnings w WHERE w.owner = r.owner AND w.period = r.period AND w.begins = r.begins
      AND w.threshold >= r.threshold AND w.budget >= r.budget)
  ORDER BY threshold DESC LIMIT (SELECT greatest(0, ${mostPending} - count(*)) FROM budget_warnings WHERE next_try IS NOT NULL)
  ON CONFLICT DO NOTHING`

const times = makeRowReader(() => "the time of the budgets", Schema.Struct({ at: Schema.Finite }))
const warnings = makeRowReader(() => "a warning of a budget", BudgetWarning)

const make = Effect.fnUntraced(function* ({ everyMs = 60_000, secret, url }: BudgetWarningsOptions) {
  if (url === undefined) return
  const pg = yield* PgClient.PgClient
  const metrics = yield* Metrics
  const calendar = yield* TimeZone

  /** Who has the row of the time compares; others pass by. A comparison that fails leaves the time as it was. */
  const compare = Effect.gen(function* () {
    const begun = yield* times.first(pg`
      UPDATE budget_watch SET at = now() WHERE one = (
        SELECT one FROM budget_watch WHERE at <= now() - make_interval(secs => ${everyMs / 1000}::float8) FOR UPDATE SKIP LOCKED)
      RETURNING (extract(epoch FROM at) * 1000)::float8 AS at`)
    if (begun === undefined) return
    // Those that nobody could send for a day would tell of the past.
    yield* pg`
      DELETE FROM budget_warnings WHERE ends < now() - interval '35 days' OR next_try < now() - interval '1 day'`
    const days = new Set([calendar.dayAt(begun.at - lookBackMs), calendar.dayAt(begun.at)])
    yield* Effect.forEach(days, (day) => find(pg, day), { discard: true })
  })

  const take = warnings.first(pg`
    WITH due AS (
      SELECT id FROM budget_warnings WHERE next_try BETWEEN now() - interval '1 day' AND now() AND tries < ${mostTries}
      ORDER BY next_try LIMIT 1 FOR UPDATE SKIP LOCKED
    ), taken AS (
      UPDATE budget_warnings w SET tries = w.tries + 1, next_try = now() + interval '30 seconds' FROM due WHERE w.id = due.id RETURNING w.*
    )
    SELECT w.id::text, t.name AS tenant, k.name AS key, k.prefix, u.end_user AS "user",
      CASE WHEN w.user_account IS NOT NULL THEN 'user' WHEN w.model IS NOT NULL THEN 'model'
        WHEN w.key_id IS NOT NULL THEN 'key' ELSE 'tenant' END AS scope,
      w.model, w.period, w.budget::float8, w.used::float8, (extract(epoch FROM w.found_at) * 1000)::float8 AS at, w.ends::text
    FROM taken w JOIN tenants t ON t.id = w.tenant_id LEFT JOIN api_keys k ON k.id = w.key_id
      LEFT JOIN LATERAL (
        SELECT end_user FROM (
          SELECT a.end_user, a.user_account FROM audit_log a
          WHERE w.user_account IS NOT NULL AND a.key_prefix = k.prefix
          ORDER BY a.arrived_at DESC LIMIT ${searched}
        ) a WHERE a.user_account = w.user_account LIMIT 1
      ) u ON true`)

  const record = (id: string, { outcome, what }: Delivery) => pg`
    UPDATE budget_warnings SET next_try = CASE WHEN ${outcome === "failed"} AND tries < ${mostTries}
      THEN now() + make_interval(secs => ${everyMs / 4000}::float8 * 2 ^ tries) END,
      sent_at = CASE WHEN ${outcome === "delivered"} THEN now() END, failure = ${outcome === "delivered" ? null : what}
    WHERE id = ${id}::text::uuid`

  /** Sends what waits, until nothing does or the receiver fails. */
  const send = Effect.gen(function* () {
    for (;;) {
      const warning = yield* timeoutDetached("3 seconds")(take)
      if (warning === undefined) return
      const delivery = yield* post({ url, secret }, messageOf(warning, calendar))
      yield* timeoutDetached("3 seconds")(record(warning.id, delivery))
      if (delivery.outcome === "delivered") continue
      yield* metrics.backgroundFailed("budget_warnings")
      return yield* Effect.logWarning("budget warning not delivered", { id: warning.id, ...delivery })
    }
  })

  const comparing = timeoutDetached("70 seconds")(largeRead(pg)(30, compare))
  yield* background("budget_comparison", comparing, jittered(everyMs / 3))
  yield* background("budget_warnings", send, jittered(everyMs / 6))
})

export const layerBudgetWarnings = (
  options: BudgetWarningsOptions
): Layer.Layer<never, never, PgClient.PgClient | Metrics> => Layer.effectDiscard(make(options))
