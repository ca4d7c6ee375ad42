/** Closes intents with an expired lease: writes audit row and ledger as aborted, with the tokens of the last heartbeat. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { closeIntents } from "../audit/statements.ts"
import type { Account } from "../domain/Reservation.ts"
import { outcomes } from "../domain/Outcome.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { timeoutDetached } from "../infra/time.ts"

const Expired = Schema.Struct({
  request_id: Schema.String,
  arrived_at: Schema.String,
  admitted_at: Schema.String,
  tenant_id: Schema.String,
  key_id: Schema.String,
  key_prefix: Schema.String,
  method: Schema.String,
  endpoint: Schema.String,
  model: Schema.String,
  streamed: Schema.Boolean,
  client_ip: Schema.String,
  client_request_id: Schema.NullOr(Schema.String),
  end_user: Schema.NullOr(Schema.String),
  user_account: Schema.NullOr(Schema.String),
  alias: Schema.NullOr(Schema.String),
  tokens_in: Schema.Finite,
  tokens_out: Schema.Finite,
  latency_ms: Schema.Finite,
  account: Schema.String
})
const decodeExpired = Schema.decodeUnknownEffect(Schema.Array(Expired))

/** One request, or up to `limit` requests other than those of `but`. */
export type Which =
  | { readonly only: string }
  | { readonly but: ReadonlyArray<string>; readonly limit: number }

/**
 * Returns the account of each request that it closed, or that of its end user. Skips requests that another replica is closing.
 * Fails as a whole when one row breaks the statement.
 */
export const closeExpired = Effect.fnUntraced(
  function* (pg: PgClient.PgClient, which: Which) {
    const chosen =
      "only" in which
        ? pg`request_id = ${which.only}::text::uuid`
        : pg`request_id <> ALL (ARRAY(SELECT jsonb_array_elements_text(${pg.json(which.but)}))::uuid[])`
    const rows = yield* pg`
      SELECT request_id::text, arrived_at::text, admitted_at::text, tenant_id::text, key_id::text, key_prefix, method,
        endpoint, model, streamed, client_ip, client_request_id, end_user, user_account::text, alias, tokens_in::float8, tokens_out::float8,
        least(2147483647, greatest(0, extract(epoch FROM least(lease_until, now()) - arrived_at) * 1000))::integer AS latency_ms,
        coalesce((SELECT ${accountOf(pg, "k")} FROM api_keys k WHERE k.id = intents.key_id), key_id)::text AS account
      FROM intents WHERE lease_until < now() AND ${chosen}
      ORDER BY request_id LIMIT ${"only" in which ? 1 : which.limit} FOR UPDATE SKIP LOCKED`
    const expired = yield* decodeExpired(rows)
    if (expired.length > 0) {
      yield* closeIntents(pg)(
        expired.map((row) => ({
          ...row,
          tokens_cached: null,
          usage_source: "counted" as const,
          queued_ms: null,
          load_ms: null,
          truncated: null,
          repeats: 1,
          status: outcomes.aborted.status,
          error_type: outcomes.aborted.type,
          detail: "gateway: its process died"
        }))
      )
    }
    return expired.map(({ account, tenant_id, user_account }): Account => ({
      group: tenant_id,
      key: account,
      ...(user_account === null ? {} : { user: user_account })
    }))
  },
  (work, pg) => timeoutDetached("10 seconds")(pg.withTransaction(work))
)
