import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import { SqlClient } from "effect/sql"
import { prefixOf } from "../../src/domain/Key.ts"
import { userAccountId } from "../../src/domain/EndUser.ts"
import { sql } from "../support/sql.ts"
import { testWith } from "../support/testWith.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { succeeds } from "./tollgate.ts"

const line = (text: string) => tollgateHere(...text.split(" "))
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
      ["use", 1]
    ])
    assert.notInclude(exported.stdout, "zoe")
    assert.include(exported.stdout, '"prompt":"olga asks"')
    assert.include((yield* line(`export-user --key ${prefix}`)).stdout, "zoe asks")

    yield* sql`
      INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed, client_ip, end_user,
        arrived_at, admitted_at, held, tokens_in, lease_until)
      SELECT gen_random_uuid(), tenant_id, id, prefix, 'm:1', '/api/chat', 'POST', false, 'x', 'olga', now(), now(), 1, 1, now()
      FROM api_keys WHERE prefix = ${prefix}`
    assert.include((yield* ofOlga("erase-user")).stderr, "one without a running request")
    yield* sql`DELETE FROM intents`
    assert.include((yield* line(`erase-user --key ${prefix} --user ogla`)).stderr, "did you mean olga?")

    const erased = yield* ofOlga("erase-user")
    assert.include(erased.stdout, "1500 rows of the audit got a pseudonym, and 1 prompt went")
    yield* booksAre("after")
    const client = yield* SqlClient.SqlClient
    for (const table of ["audit_log", "user_ledger", "prompt_log", "audit_corrections", "api_keys"]) {
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
