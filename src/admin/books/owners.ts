/** Everybody who has live counters: keys with those that replaced them, their end users, their models with limits, and tenants. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { accountOf } from "../../gates/keys/accounts.ts"
import type { Day } from "../../domain/Calendar.ts"
import { makeRowReader } from "../../infra/rows.ts"
import { daysOf, since } from "../../ledger/periods.ts"
import { idOf } from "../../ledger/totals.ts"

const Owner = Schema.Struct({
  group: Schema.String,
  key: Schema.optionalKey(Schema.String),
  user: Schema.optionalKey(Schema.String),
  model: Schema.optionalKey(Schema.String),
  tenant: Schema.String,
  /** of the first key of the account; null: it was deleted */
  prefix: Schema.optionalKey(Schema.NullOr(Schema.String))
})
/** With its names. */
export type Owner = typeof Owner.Type

const rows = makeRowReader(() => "a key, a user, a model or a tenant", Owner)

/** Owners read at once. */
const batch = 1000

/** Gives them to `use`, some at a time. `today`: a user has live counters of its periods. */
export const forEachOwner = Effect.fnUntraced(function* <E, R>(
  sql: SqlClient.SqlClient,
  today: Day,
  use: (owners: ReadonlyArray<Owner>) => Effect.Effect<void, E, R>
) {
  const after = (id: string) => sql`${id}::text::uuid`
  const account = accountOf(sql, "k")
  const named = sql`JOIN tenants t ON t.id = k.tenant_id LEFT JOIN api_keys first ON first.id = ${account}`
  const ofKey = sql`k.tenant_id::text AS group, t.name AS tenant, first.prefix`
  const pages = [
    (id: string) => sql`
      SELECT DISTINCT ON (${account}) ${account}::text AS key, ${ofKey} FROM api_keys k ${named}
      WHERE ${account} > ${after(id)} ORDER BY ${account} LIMIT ${batch}`,
    // Those that used anything this week or month: the counters of the others are gone, or wait for their next request.
    (id: string) => sql`
      SELECT DISTINCT ON (l.user_account) l.user_account::text AS user, ${account}::text AS key, ${ofKey}
      FROM user_ledger l JOIN api_keys k ON k.id = l.key_id ${named}
      WHERE l.user_account > ${after(id)} AND l.day >= (SELECT ${sql.literal(since.month)} FROM (${daysOf(sql, today)}) at)
      ORDER BY l.user_account LIMIT ${batch}`,
    (id: string) => sql`
      SELECT DISTINCT ON (o.id) o.key, o.model, o.group, o.tenant, o.prefix FROM (
        SELECT ${account}::text AS key, rules.model, ${account}::text || ' ' || rules.model COLLATE "C" AS id, ${ofKey}
        FROM api_keys k ${named} CROSS JOIN jsonb_object_keys(t.model_rules || k.model_rules) AS rules (model)
      ) o WHERE o.id > ${id}::text ORDER BY o.id LIMIT ${batch}`,
    (id: string) =>
      sql`SELECT id::text AS group, name AS tenant FROM tenants WHERE id > ${after(id)} ORDER BY id LIMIT ${batch}`
  ]
  for (const page of pages)
    for (let last = "00000000-0000-0000-0000-000000000000"; ;) {
      const owners = yield* rows.all(page(last))
      yield* use(owners)
      const end = owners.at(-1)
      if (end === undefined || owners.length < batch) break
      last = idOf(end)
    }
})
