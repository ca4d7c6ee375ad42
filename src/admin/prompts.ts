/** Reads and erases the logged prompts of one key. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { makeRowReader } from "../infra/rows.ts"
import { withRegistryDown } from "./Errors.ts"
import { LoggedPrompt } from "./rows.ts"
import * as Values from "./Values.ts"

const prompts = makeRowReader(({ requestId }) => `the prompt of request ${String(requestId)}`, LoggedPrompt)

export const readPrompts = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  prefix: string,
  which: { readonly limit: number; readonly sinceMs?: number | undefined }
) {
  const limit = yield* Values.validate("limit", Values.listed, which.limit)
  const since =
    which.sinceMs === undefined
      ? sql`'-infinity'::timestamptz`
      : sql`now() - ${yield* Values.validate("since", Values.lifetimeMs, which.sinceMs)}::float8 * interval '1 millisecond'`
  return yield* prompts.all(sql`
      SELECT p.request_id::text AS "requestId", p.created_at AS created, p.expires_at AS expires, p.endpoint, p.prompt,
        p.answer, p.truncated
      FROM prompt_log p JOIN api_keys k ON k.id = p.key_id
      WHERE k.prefix = ${prefix} AND p.created_at >= ${since} AND p.expires_at > now()
      ORDER BY p.created_at DESC, p.request_id DESC LIMIT ${limit}`)
})

/** At most so many are deleted at once, so that no delete holds locks for long. */
const batch = 500

/** Deletes all in batches, each with a deadline, and returns how many there were. A prompt that is written meanwhile may stay. */
export const erasePrompts = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, prefix: string) {
  for (let erased = 0; ;) {
    const { length } = yield* withRegistryDown(sql`
      DELETE FROM prompt_log WHERE request_id IN (
        SELECT p.request_id FROM prompt_log p JOIN api_keys k ON k.id = p.key_id
        WHERE k.prefix = ${prefix} LIMIT ${batch})
      RETURNING 1`)
    erased += length
    if (length < batch) return erased
  }
})
