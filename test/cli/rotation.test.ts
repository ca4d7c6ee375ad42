import { assert, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { prefixOf } from "../../src/domain/Key.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { json, succeeds } from "./tollgate.ts"

/** All columns of a key that rotation has to carry over; lifetimes in days. */
const settingsOf = Effect.fnUntraced(function* (prefix: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql`
    SELECT tenant_id::text, name, scopes::text, status, rpm, tpm, concurrent, budget_daily::text, budget_monthly::text,
      budget_total::text, end_user_header, prompt_log, prompt_log_days,
      round(extract(epoch FROM expires_at - created_at) / 86400)::int AS days
    FROM api_keys WHERE prefix = ${prefix}`
  return row
})

const hoursLeft = Effect.fnUntraced(function* (prefix: string) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ hours: number | null }>`
    SELECT extract(epoch FROM expires_at - now())::float8 / 3600 AS hours FROM api_keys WHERE prefix = ${prefix}`
  return row?.hours
})

it.effect(
  "when a key is rotated, then all its settings carry over, the key alone is printed, and the old one ends after the grace",
  () =>
    Effect.gen(function* () {
      succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
      const words =
        "--tenant acme --name ci --scopes embeddings --expires-in 90d --rpm 7 --tpm 700 --concurrent 2 --end-user-header X-User"
      const old = prefixOf((yield* tollgateHere("create-key", ...words.split(" "))).stdout)
      succeeds(yield* tollgateHere("set-budget", "--key", old, "--daily", "100", "--total", "5000"))
      succeeds(yield* tollgateHere("set-prompt-log", "--key", old, "--on", "--retention-days", "3"))
      const before = yield* settingsOf(old)

      const ran = yield* tollgateHere("rotate-key", "--prefix", old, "--grace", "2d")
      succeeds(ran)
      assert.match(ran.stdout, /^tg_[0-9A-Za-z]{41}\n$/)
      assert.match(ran.stderr, /which works until \d{4}-/)
      const fresh = prefixOf(ran.stdout)
      assert.notStrictEqual(fresh, old)
      assert.deepStrictEqual(yield* settingsOf(fresh), before)
      assert.closeTo((yield* hoursLeft(fresh)) ?? 0, 90 * 24, 1)
      assert.closeTo((yield* hoursLeft(old)) ?? 0, 48, 1)
      const sql = yield* SqlClient.SqlClient
      const stored = yield* sql<{ row: string }>`SELECT k::text AS row FROM api_keys k`
      assert.isFalse(stored.some(({ row }) => row.includes(ran.stdout.trim().slice(12))))
    }).pipe(Effect.provide(Admin))
)

it.effect("when there is no grace, then the old key stays as it is, and a grace never prolongs one", () =>
  Effect.gen(function* () {
    succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
    const lasting = prefixOf((yield* tollgateHere("create-key", "--tenant", "acme", "--name", "a")).stdout)
    const Answer = Schema.Struct({
      secret: Schema.String,
      expires: Schema.Null,
      replaced: Schema.Struct({ prefix: Schema.String, status: Schema.String, expires: Schema.Null })
    })
    const ran = yield* tollgateHere("rotate-key", "--prefix", lasting, "--json")
    const answer = yield* json(Answer, ran)
    assert.deepStrictEqual(answer.replaced, { prefix: lasting, status: "active", expires: null })
    assert.isNull(yield* hoursLeft(lasting))

    const brief = prefixOf(
      (yield* tollgateHere("create-key", "--tenant", "acme", "--name", "b", "--expires-in", "1h")).stdout
    )
    succeeds(yield* tollgateHere("rotate-key", "--prefix", brief, "--grace", "30d"))
    assert.isBelow((yield* hoursLeft(brief)) ?? 99, 1.01)
  }).pipe(Effect.provide(Admin))
)

it.effect("when a leaked key was revoked and is then replaced, then it stays revoked", () =>
  Effect.gen(function* () {
    succeeds(yield* tollgateHere("create-tenant", "--name", "acme"))
    const leaked = prefixOf((yield* tollgateHere("create-key", "--tenant", "acme", "--name", "a")).stdout)
    succeeds(yield* tollgateHere("revoke-key", "--prefix", leaked))
    const ran = yield* tollgateHere("rotate-key", "--prefix", leaked)
    succeeds(ran)
    assert.include(ran.stderr, "which is revoked")
    const listed = yield* tollgateHere("list-keys", "--tenant", "acme")
    assert.match(listed.stdout, new RegExp(`${leaked}\\s+revoked`))
    assert.match(listed.stdout, new RegExp(`${prefixOf(ran.stdout)}\\s+active`))
  }).pipe(Effect.provide(Admin))
)
