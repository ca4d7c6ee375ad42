/** Rows that somebody has written without a command: a command that cannot read one names it and fails. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { prefixOf } from "../../src/domain/Key.ts"
import { dropChecks, readColumns, withOddValues } from "../support/oddRows.ts"
import { Admin, fileOf, tollgateHere } from "./inProcess.ts"
import { failsWith, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** A tenant with a key before and one after the odd one. */
const threeTenants = Effect.gen(function* () {
  const prefixes: Array<string> = []
  for (const name of ["a", "odd", "z"]) {
    succeeds(yield* tollgateHere("create-tenant", "--name", name))
    const made = yield* tollgateHere("create-key", "--tenant", name, "--name", `key-of-${name}`)
    prefixes.push(prefixOf(made.stdout))
  }
  return prefixes
})

const test = testWith(it.effect, Admin)

test("when any column of a tenant or key is odd, then export names the row and prints nothing", function* () {
  const [, oddKey = ""] = yield* threeTenants
  yield* dropChecks
  for (const [table, column] of readColumns) {
    const isTenant = table === "tenants"
    const ran = yield* withOddValues(
      table,
      column,
      isTenant ? "name = 'odd'" : `prefix = '${oddKey}'`,
      tollgateHere("export")
    )
    const named = ran.filter(({ code }) => code !== 0)
    assert.isNotEmpty(named, `${table}.${column}: no odd value was refused`)
    for (const { code, stderr, stdout } of named) {
      assert.strictEqual(code, 1)
      const row = isTenant ? "tenant odd" : `key ${oddKey}`
      assert.include(stderr, `tollgate: ${row} cannot be read: ${column.replace(/_at$/, "")}`)
      assert.strictEqual(stdout, "")
    }
  }
  succeeds(yield* tollgateHere("export"))
})

test("when the aliases of a tenant are odd, then commands that show the tenant name it, and others do their work", function* () {
  const [, oddKey = ""] = yield* threeTenants
  yield* sql`UPDATE tenants SET model_aliases = '{"a":5}' WHERE name = 'odd'`
  const problem = /^tollgate: tenant odd cannot be read: model_aliases\.a: Expected string$/m

  failsWith(yield* tollgateHere("list-tenants"), problem)
  const asJson = yield* tollgateHere("list-tenants", "--json")
  assert.match(asJson.stderr, /^\{"error":\{"message":"tenant odd cannot be read: model_aliases/)

  // Its keys can be read.
  succeeds(yield* tollgateHere("list-keys"))
  succeeds(yield* tollgateHere("list-keys", "--tenant", "odd"))
  succeeds(yield* tollgateHere("create-key", "--tenant", "odd", "--name", "more"))
  succeeds(yield* tollgateHere("revoke-key", "--prefix", oddKey))
  succeeds(yield* tollgateHere("show-usage", "--tenant", "odd"))

  // A change that cannot be shown is not made.
  failsWith(yield* tollgateHere("set-limits", "--tenant", "odd", "--rpm", "7"), problem)
  const [row] = yield* sql<{ rpm: number }>`SELECT rpm FROM tenants WHERE name = 'odd'`
  assert.strictEqual(row?.rpm, 60)

  const file = fileOf("version: 1\ntenants: [{ name: a, rpm: 8 }]\n")
  failsWith(yield* tollgateHere("apply", "-f", file), problem)
})

test("when a key is odd, then its tenant can be disabled, and limits of the tenant are not changed", function* () {
  const [, oddKey = ""] = yield* threeTenants
  yield* dropChecks
  yield* sql`UPDATE api_keys SET rpm = -1 WHERE prefix = ${oddKey}`
  const problem = new RegExp(`^tollgate: key ${oddKey} cannot be read: rpm`, "m")
  failsWith(yield* tollgateHere("set-limits", "--tenant", "odd", "--rpm", "7"), problem)
  const disabled = yield* tollgateHere("disable-tenant", "--tenant", "odd")
  assert.match(disabled.stdout, /\nodd +disabled /)
  assert.match(disabled.stderr, problem)
  const [row] = yield* sql<{
    disabled: boolean
    rpm: number
  }>`SELECT disabled, rpm FROM tenants WHERE name = 'odd'`
  assert.deepStrictEqual(row, { disabled: true, rpm: 60 })
})

test("when rows of the audit, the prompt log or the replicas are odd, then they are named", function* () {
  const [key = ""] = yield* threeTenants
  yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, tenant_id, key_id, key_prefix, method, endpoint, streamed,
        tokens_in, tokens_out, usage_source, status, latency_ms, client_ip, completed_at)
      SELECT ('019e0000-0000-7000-8000-00000000000' || n)::uuid, now(), tenant_id, id, prefix, 'POST', '/api/chat', true, 0, 0,
        'backend', 200, 1, '127.0.0.1', CASE n WHEN 2 THEN 'infinity' ELSE now() END
      FROM api_keys, generate_series(1, 3) n WHERE prefix = ${key}`
  failsWith(
    yield* tollgateHere("requests", "--key", key),
    /^tollgate: request 019e\S+2 cannot be read: completed_at: /
  )

  yield* sql`
      INSERT INTO prompt_log (request_id, key_id, created_at, expires_at, endpoint, prompt, answer)
      SELECT gen_random_uuid(), id, now(), CASE n WHEN 2 THEN 'infinity' ELSE now() + interval '1 day' END, '/api/chat',
        'prompt ' || n, 'answer'
      FROM api_keys, generate_series(1, 3) n WHERE prefix = ${key}`
  failsWith(
    yield* tollgateHere("show-prompt-log", "--key", key),
    /^tollgate: the prompt of request \S+ cannot be read: expires: /
  )

  yield* sql`
      INSERT INTO replicas (id, host, version, gauges) SELECT gen_random_uuid(), 'pod-' || n, '1.0.0',
        CASE n WHEN 2 THEN '{"a":"b"}'::jsonb ELSE '{}' END FROM generate_series(1, 3) n`
  const status = yield* tollgateHere("status")
  assert.match(status.stdout, /replicas +failed +replica \S+ cannot be read: gauges\.a/)
  assert.include(status.stdout, "delete the row: a running gateway writes it again")
})
