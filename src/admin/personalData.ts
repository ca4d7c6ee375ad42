/**
 * The data of one end user of a key, or of all requests of a key: exported and erased.
 *
 * Erasing replaces each name, the account and the address by pseudonyms, so sums stay as they are. It sees one snapshot: what the
 * gateways book meanwhile makes it begin again, or stays under the name as a whole, in the audit and in the ledger.
 */
import { randomUUID } from "node:crypto"
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { isSqlError, type SqlError } from "effect/sql/SqlError"
import { endUserOf, storedNames, userAccountId } from "../domain/EndUser.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader, oneRow } from "../infra/rows.ts"
import { mustBe, withRegistryDownAfter } from "./Errors.ts"
import { largeRead, lockAccount } from "./rows.ts"
import { hashedIn, readUsersOwner } from "./users.ts"

/** Rows that are read at a time. */
const page = 1000

/**
 * Conditions for all that is stored of the keys of an account, or of one of its end users by any of its stored names: rows of the
 * audit and of the intents, of the uses, of the prompts, and rules `r`.
 */
const whoOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  prefix: string,
  user: string | undefined
) {
  const { account } = yield* readUsersOwner(sql, prefix)
  const keys = sql`(SELECT k.id FROM api_keys k WHERE ${accountOf(sql, "k")} = ${account}::text::uuid)`
  const ofKeys = sql`key_id IN ${keys}`
  if (user === undefined) return { keys, rows: ofKeys, uses: ofKeys, prompts: ofKeys, rules: sql`true` }
  const name = endUserOf(user)
  if (name === undefined) return yield* mustBe("user", "a name")
  const stored = storedNames(account, name)
  const names = sql`(${sql.csv(stored.map((one) => sql`${one}`))})`
  const ids = sql.csv(stored.map((one) => sql`${userAccountId(account, one)}::text::uuid`))
  const rows = sql`${ofKeys} AND end_user IN ${names}`
  return {
    keys,
    rows,
    uses: sql`user_account IN (${ids})`,
    prompts: sql`request_id IN (SELECT request_id FROM audit_log WHERE ${rows})`,
    rules: sql`r.name IN ${names}`
  }
})

const lines = makeRowReader(
  () => "a row of the export",
  Schema.Struct({ line: Schema.Record(Schema.String, Schema.Unknown) })
)
const rowsOf = oneRow({ rows: Schema.Finite })

const isConflict = (error: unknown): error is SqlError =>
  isSqlError(error) && error.reason._tag === "SerializationError"

/** A request runs, or one ended during each try of an erase. */
const inUse = (user: string | undefined) =>
  user === undefined
    ? mustBe("key", "one without a running request: disable-key --stop-running ends them")
    : mustBe("user", "one without a running request: block-user, and wait until its requests are over")

export type Line = { readonly type: string; readonly [field: string]: unknown }

export const makePersonalData = (sql: SqlClient.SqlClient) => ({
  /** Gives everything that is stored to `use`, some lines at a time. */
  exportUser: <E>(
    prefix: string,
    user: string | undefined,
    use: (lines: ReadonlyArray<Line>) => Effect.Effect<void, E>
  ) =>
    largeRead(sql)(
      300,
      Effect.gen(function* () {
        const { prompts, rows, uses } = yield* whoOf(sql, prefix, user)
        const mine = sql`(SELECT request_id FROM audit_log WHERE ${rows})`
        const inner = sql.literal("ARRAY['tenant_id', 'key_id', 'user_account', 'owner']")
        const tables = {
          request: sql`audit_log r WHERE ${rows} ORDER BY request_id`,
          correction: sql`audit_corrections r WHERE request_id IN ${mine} ORDER BY request_id`,
          prompt: sql`prompt_log r WHERE ${prompts} ORDER BY request_id`,
          use: sql`user_ledger r WHERE ${uses} ORDER BY day, user_account`,
          warning: sql`budget_warnings r WHERE ${uses} ORDER BY found_at`
        }
        for (const [type, table] of Object.entries(tables)) {
          yield* sql`DECLARE stored NO SCROLL CURSOR FOR SELECT to_jsonb(r) - ${inner} AS line FROM ${table}`
          for (let size = page; size === page;) {
            const found = yield* lines.all(sql`FETCH ${sql.literal(String(page))} FROM stored`)
            yield* use(found.map(({ line }) => ({ type, ...line })))
            size = found.length
          }
          yield* sql`CLOSE stored`
        }
      }),
      { snapshot: true }
    ).pipe(withRegistryDownAfter("30 minutes")),

  /** Returns how many rows of the audit changed, and how many prompts were deleted. Refused while requests run or end. */
  eraseUser: (prefix: string, user: string | undefined) =>
    largeRead(sql)(
      300,
      Effect.gen(function* () {
        const { keys, prompts, rows, rules, uses } = yield* whoOf(sql, prefix, user)
        yield* lockAccount(sql, prefix)
        const running = yield* rowsOf(sql`SELECT count(*)::float8 AS rows FROM intents WHERE ${rows}`)
        if (running.rows > 0) return yield* inUse(user)
        // Nobody knows it afterwards, so nobody finds the name to a pseudonym.
        const secret = randomUUID()
        const pseudonym = sql`md5(${secret} || user_account::text)::uuid`
        const gone = yield* rowsOf(sql`
          WITH gone AS (DELETE FROM prompt_log WHERE ${prompts} RETURNING 1) SELECT count(*)::float8 AS rows FROM gone`)
        const requests = yield* rowsOf(sql`
          WITH changed AS (
            UPDATE audit_log SET end_user = 'erased:' || left(md5(${secret} || end_user), 16), user_account = ${pseudonym},
            client_ip = 'erased', client_request_id = NULL
            WHERE ${rows} RETURNING 1
          ) SELECT count(*)::float8 AS rows FROM changed`)
        // A block stays, under the hash of the name.
        yield* sql`
          UPDATE api_keys k SET user_rules = (
            SELECT coalesce(jsonb_object_agg(
              CASE WHEN NOT mine OR name ~ '^sha256:[0-9a-f]{32}$' THEN name ELSE ${hashedIn(sql, sql`name`)} END,
              CASE WHEN mine THEN '{"blocked": true}' ELSE rule END), '{}')
            FROM (SELECT r.name, r.rule, ${rules} AS mine FROM jsonb_each(k.user_rules) r(name, rule)) judged
            WHERE NOT mine OR (rule ->> 'blocked')::boolean)
          WHERE k.id IN ${keys}`
        yield* sql`UPDATE budget_warnings SET owner = ${pseudonym}, user_account = ${pseudonym} WHERE ${uses} AND user_account IS NOT NULL`
        // Last, because whoever books to these rows waits for the end. A correction that is under way has read the account already.
        yield* sql`LOCK TABLE audit_corrections IN SHARE MODE`
        yield* sql`UPDATE user_ledger SET user_account = ${pseudonym} WHERE ${uses}`
        return { requests: requests.rows, prompts: gone.rows }
      }),
      { snapshot: true, writes: true }
    ).pipe(
      Effect.retry({ while: isConflict, times: 5 }),
      Effect.catchIf(isConflict, () => inUse(user)),
      withRegistryDownAfter("30 minutes")
    )
})
