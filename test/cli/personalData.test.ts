import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { correctAudit } from "../../src/audit/corrections.ts"
import { completionRow } from "../../src/audit/rows.ts"
import { writeRows } from "../../src/audit/statements.ts"
import { utc } from "../../src/domain/Calendar.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { userAccountId } from "../../src/domain/EndUser.ts"
import { sql } from "../support/sql.ts"
import { testWith } from "../support/testWith.ts"
import { eventually } from "../support/wait.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { open } from "./auditRows.ts"
import { Admin, line } from "./inProcess.ts"
import { succeeds } from "./tollgate.ts"

const Lines = Schema.Array(Schema.Struct({ type: Schema.String }))

testWith(it.effect, Admin)(
  "when a person's data is exported and erased, then it is all there, nothing names the person, and the books stay right",
  function* () {
    succeeds(yield* line("create-tenant --name gdpr"))
    const prefix = prefixOf(
      (yield* line("create-key --tenant gdpr --name webui --end-user-header X-User")).stdout
    )
    const [key] = yield* sql<{ id: string }>`SELECT id::text FROM api_keys WHERE prefix = ${prefix}`
    const idOf = (name: string) => userAccountId(key?.id ?? "", name)
    const [olga, zoe] = [idOf("olga"), idOf("zoe")]
    yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model, streamed,
        tokens_in, tokens_out, status, latency_ms, client_ip, client_request_id, end_user, user_account)
      SELECT (left(first_request_id(now())::text, 14) || '7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(), now(), tenant_id, id,
        prefix, 'POST', '/api/chat', 'm:1', false, 10, 5, 200, 1, '10.1.2.3', CASE WHEN n <= 1500 THEN 'olga-1' END,
        CASE WHEN n <= 1500 THEN 'olga' ELSE 'zoe' END, CASE WHEN n <= 1500 THEN ${olga} ELSE ${zoe} END::uuid
      FROM api_keys, generate_series(1, 1501) n WHERE prefix = ${prefix}`
    yield* sql`
      INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT id, tenant_id, (now() AT TIME ZONE 'UTC')::date, 1501, 15010 + 7, 7505 FROM api_keys WHERE prefix = ${prefix}`
    yield* sql`
      INSERT INTO audit_corrections (request_id, tenant_id, key_id, key_prefix, admitted_at, tokens_in, tokens_out, status)
      SELECT request_id, tenant_id, key_id, key_prefix, admitted_at, 7, 0, 200 FROM audit_log WHERE end_user = 'olga'
      ORDER BY request_id LIMIT 1`
    yield* sql`
      INSERT INTO prompt_log (request_id, key_id, expires_at, endpoint, prompt, answer)
      SELECT request_id, key_id, now() + interval '1 day', endpoint, end_user || ' asks', 'yes'
      FROM (SELECT DISTINCT ON (end_user) * FROM audit_log ORDER BY end_user, request_id) a`
    yield* sql`
      INSERT INTO budget_warnings (owner, tenant_id, key_id, user_account, period, begins, threshold, budget, used)
      SELECT u.id, tenant_id, k.id, u.id, 'day', now(), 80, 10, 8
      FROM api_keys k, (VALUES (${olga}::text::uuid), (${zoe}::text::uuid)) u (id) WHERE prefix = ${prefix}`
    const ofOlga = (command: string) => line(`${command} --key ${prefix} --user olga`)
    succeeds(yield* ofOlga("block-user"))
    const booksAre = function* (what: string) {
      assert.match((yield* line("reconcile")).stdout, /The books of the database are right/, what)
    }
    yield* booksAre("before")

    const exported = yield* ofOlga("export-user")
    const parsed = exported.stdout
      .trimEnd()
      .split("\n")
      .map((text): unknown => JSON.parse(text))
    const found = Map.groupBy(yield* Schema.decodeUnknownEffect(Lines)(parsed), ({ type }) => type)
    const counts = [...found].map(([type, all]) => [type, all.length])
    assert.deepStrictEqual(counts, [
      ["rule", 1],
      ["request", 1500],
      ["correction", 1],
      ["prompt", 1],
      ["use", 1],
      ["warning", 1]
    ])
    assert.notInclude(exported.stdout, "zoe")
    assert.include(exported.stdout, '"prompt":"olga asks"')
    assert.include((yield* line(`export-user --key ${prefix}`)).stdout, "zoe asks")

    yield* open(prefix, "olga")
    assert.include((yield* ofOlga("erase-user")).stderr, "one without a running request")
    yield* sql`DELETE FROM intents`
    assert.include((yield* line(`erase-user --key ${prefix} --user ogla`)).stderr, "did you mean olga?")
    // A request ends during each try.
    yield* sql`
      CREATE FUNCTION booked() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$`
    yield* sql`CREATE TRIGGER booked BEFORE UPDATE ON user_ledger FOR EACH ROW EXECUTE FUNCTION booked()`
    assert.include((yield* ofOlga("erase-user")).stderr, "one without a running request: block-user")
    yield* sql`DROP FUNCTION booked CASCADE`

    const erased = yield* ofOlga("erase-user")
    assert.include(erased.stdout, "1500 rows of the audit got a pseudonym, and 1 prompt went")
    yield* booksAre("after")
    const client = yield* SqlClient.SqlClient
    for (const table of [
      "audit_log",
      "user_ledger",
      "prompt_log",
      "audit_corrections",
      "api_keys",
      "budget_warnings"
    ]) {
      const rows = yield* sql<{ text: string }>`SELECT t::text AS text FROM ${client.literal(table)} t`
      const text = rows.map(({ text }) => text).join("\n")
      for (const one of ["olga", olga]) assert.notInclude(text, one, table)
    }
    // One person is still one, and zoe is who she was.
    const report = yield* line("report --by user --tenant gdpr")
    assert.match(report.stdout, /erased:\w{16}\s+1,500\s+15,007\s+0\s+7,500/)
    assert.match(report.stdout, /zoe\s+1\s+10\s+0\s+5/)
    const [others] = yield* sql`SELECT requests::int FROM user_ledger WHERE user_account = ${zoe}::uuid`
    assert.deepStrictEqual({ ...others }, { requests: 1 })
    assert.match((yield* line(`show-key --key ${prefix}`)).stdout, /user sha256:\w{32}\s+blocked/)
    assert.include((yield* line(`erase-user --key ${prefix} --user olga --yes`)).stdout, "0 rows")
  }
)

testWith(it.effect, Admin)(
  "when all requests of a key are erased, then nothing of them names anybody, other keys are as they were, and the books stay right",
  function* () {
    succeeds(yield* line("create-tenant --name office"))
    const make = (name: string) =>
      Effect.map(line(`create-key --tenant office --name ${name} --end-user-header X-User`), ({ stdout }) =>
        prefixOf(stdout)
      )
    const [old, other] = [yield* make("anna"), yield* make("berta")]
    const prefix = prefixOf((yield* line(`rotate-key --key ${old}`)).stdout)
    const [key] = yield* sql<{ id: string }>`SELECT id::text FROM api_keys WHERE prefix = ${old}`
    const olga = userAccountId(key?.id ?? "", "olga")
    // Of the key, of the one that it replaced, and of another: of olga, of zoe and of nobody.
    yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model, streamed,
        tokens_in, tokens_out, status, latency_ms, client_ip, client_request_id, end_user, user_account)
      SELECT (left(first_request_id(now())::text, 14) || '7000-8000-' || lpad((3 * n + k.nr)::text, 12, '0'))::uuid, now(), now(),
        k.tenant_id, k.id, k.prefix, 'POST', '/api/chat', 'm:1', false, 10, 5, 200, 1, '10.1.2.3', 'mine-' || n,
        u.name, CASE WHEN k.prefix <> ${other} AND u.name = 'olga' THEN ${olga}::uuid END
      FROM (SELECT *, row_number() OVER (ORDER BY prefix) - 1 AS nr FROM api_keys) k, (VALUES (0, 'olga'), (1, 'olga'), (2, 'zoe'), (3, NULL)) u(n, name)`
    yield* sql`
      INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT id, tenant_id, (now() AT TIME ZONE 'UTC')::date, 4, 40, 20 FROM api_keys`
    // The audit row of the last prompt was dropped.
    yield* sql`
      INSERT INTO prompt_log (request_id, key_id, expires_at, endpoint, prompt, answer)
      SELECT request_id, key_id, now() + interval '1 day', endpoint, 'olga asks', 'yes' FROM audit_log WHERE end_user = 'olga'
      UNION ALL SELECT gen_random_uuid(), id, now() + interval '1 day', '/api/chat', 'olga asked', 'yes' FROM api_keys WHERE prefix = ${old}`
    succeeds(yield* line(`block-user --key ${prefix} --user olga`))
    succeeds(yield* line(`set-limits --key ${prefix} --user zoe --rpm 5`))
    const rowsOf = (owner: string) =>
      sql`SELECT count(*)::int AS rows, count(DISTINCT end_user)::int AS users, count(end_user)::int AS named,
          count(DISTINCT user_account)::int AS accounts, sum(tokens_in + tokens_out)::int AS tokens
        FROM audit_log WHERE key_prefix = ${owner}`
    const untouched = sql`SELECT a::text FROM audit_log a WHERE key_prefix = ${other} ORDER BY request_id`
    const [before, theirs] = [yield* rowsOf(old), yield* untouched]

    assert.include(
      (yield* line(`erase-user --key ${prefix}`)).stderr,
      `--yes must be given too, because without --user all requests of ${prefix} are erased`
    )
    yield* open(old)
    assert.include(
      (yield* line(`erase-user --key ${prefix} --yes`)).stderr,
      "--key must be one without a running request: disable-key --stop-running ends them"
    )
    yield* sql`DELETE FROM intents`
    const erased = yield* line(`erase-user --key ${prefix} --yes`)
    assert.include(erased.stdout, "8 rows of the audit got a pseudonym, and 5 prompts went", erased.stderr)
    assert.match((yield* line("reconcile")).stdout, /The books of the database are right/)

    const client = yield* SqlClient.SqlClient
    const keys = sql`SELECT id::text FROM api_keys WHERE prefix IN (${old}, ${prefix})`
    for (const { id } of yield* keys)
      for (const table of ["audit_log", "user_ledger", "prompt_log", "audit_corrections"]) {
        const rows = yield* sql<{ text: string }>`
          SELECT t::text AS text FROM ${client.literal(table)} t WHERE key_id = ${id}::text::uuid`
        for (const { text } of rows)
          for (const one of ["olga", "zoe", "mine-", "10.1.2.3", olga]) assert.notInclude(text, one, table)
      }
    // As many people as before, and the same sums.
    assert.deepStrictEqual(yield* rowsOf(old), before)
    assert.deepStrictEqual(yield* untouched, theirs)
    const [uses] =
      yield* sql`SELECT count(*)::int AS rows, sum(tokens_in + tokens_out)::int AS tokens FROM user_ledger`
    assert.deepStrictEqual({ ...uses }, { rows: 1, tokens: 60 })
    const shown = (yield* line(`show-key --key ${prefix}`)).stdout
    assert.match(shown, /user sha256:\w{32}\s+blocked/)
    assert.notInclude(shown, "zoe")
    assert.include((yield* line(`export-user --key ${other}`)).stdout, "olga asks")
    assert.notInclude((yield* line(`export-user --key ${prefix}`)).stdout, "olga")
  }
)

testWith(it.effect, Admin)(
  "when a late row of the person is corrected during the erase, then the erase waits for it, and the books stay right",
  function* () {
    succeeds(yield* line("create-tenant --name late"))
    const prefix = prefixOf(
      (yield* line("create-key --tenant late --name k --end-user-header X-User")).stdout
    )
    const [key] = yield* sql<{ id: string; tenant: string }>`
      SELECT id::text, tenant_id::text AS tenant FROM api_keys WHERE prefix = ${prefix}`
    const user = userAccountId(key?.id ?? "", "ada")
    const caller = { ...callerOf(key?.id, key?.tenant), keyPrefix: prefix }
    const intent = intentOf({ caller, arrivedAt: Date.now(), endUser: "ada", user })
    const pg = yield* PgClient.PgClient
    yield* writeRows(pg)([
      completionRow(endOf(intent, usageOf(5, 1), { status: 500, errorType: "aborted" }), utc)
    ])
    const [corrected, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    yield* Effect.addFinalizer(() => Deferred.succeed(done, undefined))
    const correcting = yield* Effect.forkChild(
      pg.withTransaction(
        Effect.gen(function* () {
          yield* correctAudit(pg)([completionRow(endOf(intent, usageOf(5, 9)), utc)])
          yield* Deferred.succeed(corrected, undefined)
          yield* Deferred.await(done)
        })
      )
    )
    yield* Deferred.await(corrected)
    const erasing = yield* Effect.forkChild(line(`erase-user --key ${prefix} --user ada`))
    const waits = sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
      AND query LIKE 'LOCK TABLE%'`
    assert.lengthOf(yield* TestClock.withLive(eventually(waits, ({ length }) => length === 1)), 1)
    yield* Deferred.succeed(done, undefined)
    yield* Fiber.join(correcting)
    assert.include((yield* Fiber.join(erasing)).stdout, "1 row of the audit got a pseudonym")
    assert.match((yield* line("reconcile")).stdout, /The books of the database are right/)
    const uses =
      yield* sql`SELECT user_account::text AS account, (tokens_in + tokens_out)::int AS tokens FROM user_ledger`
    assert.lengthOf(uses, 1)
    assert.strictEqual(uses[0]?.["tokens"], 14)
    assert.notStrictEqual(uses[0]?.["account"], user)
  }
)
