/** `deploy/postgres/roles.sql` gives each of its roles all that it needs, and nothing of what it must not have. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as PgClient from "@effect/sql-pg/PgClient"
import { layerBudgetWarnings } from "../../src/admin/budgetWarnings.ts"
import { correctAudit } from "../../src/audit/corrections.ts"
import { completionRow } from "../../src/audit/rows.ts"
import { writeRows } from "../../src/audit/statements.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { succeeds, tollgateWith } from "../cli/tollgate.ts"
import { eventually, hello, layerFake } from "../support/Gateway.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { makeGatewayOnStores, post, readiness } from "../support/GatewayProcess.ts"
import { ask } from "../support/posting.ts"
import { makeReceiver } from "../support/Receiver.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"
import { utc } from "../../src/domain/Calendar.ts"

const file = readFileSync(path.resolve(import.meta.dirname, "../../deploy/postgres/roles.sql"), "utf8")

/** One by one: the protocol takes one at a time. A statement ends at a line's end before an empty one. */
const statements = file
  .replaceAll(/^--.*\n/gm, "")
  .split(/;\n(?:\n|$)/)
  .map((statement) => statement.trim())
  .filter((statement) => statement !== "")

const grant = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  // As often as one likes.
  for (const statement of [...statements, ...statements]) yield* sql.unsafe(statement)
})

type Role = "tollgate_gateway" | "tollgate_cli" | "tollgate_console"

const urlOf = (role: Role) =>
  Effect.map(TestDatabase, ({ url }) => {
    const given = new URL(Redacted.value(url))
    given.username = role
    return given.href
  })

/** The client of `role`, for statements that are none of the product's. */
const as = <A, E>(role: Role, work: Effect.Effect<A, E, SqlClient.SqlClient | PgClient.PgClient>) =>
  Effect.flatMap(urlOf(role), (url) =>
    Effect.provide(work, Layer.fresh(layerPostgres({ url: Redacted.make(url), maxConnections: 1 })))
  )

const refused = Effect.fnUntraced(function* (role: Role, statement: string) {
  const error = yield* as(
    role,
    Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.flip(sql.unsafe(statement)))
  )
  assert.match(JSON.stringify(error), /42501|permission denied|must be owner/i, `${role}: ${statement}`)
})

inWorld(Layer.mergeAll(TestPostgres, layerTestRedis, layerFake))("with a role for each", (test) => {
  test("when each role does its work, then commands administer, the gateway serves and books, and the console revokes", function* () {
    yield* grant
    const sql = yield* SqlClient.SqlClient
    const DATABASE_URL = yield* urlOf("tollgate_cli")
    const tollgate = (...args: ReadonlyArray<string>) =>
      Effect.tap(tollgateWith({ DATABASE_URL }, args), (ran) => Effect.sync(() => succeeds(ran)))
    yield* tollgate("create-tenant", "--name", "t", "--allow-all-models")
    const secret = (yield* tollgate("create-key", "--tenant", "t", "--name", "k")).stdout.trim()
    const prefix = secret.slice(0, 12)
    yield* tollgate("set-prompt-log", "--key", prefix, "--on")
    yield* tollgate("set-budget", "--key", prefix, "--daily", "1000000")
    yield* tollgate("reconcile")
    yield* tollgate("report", "--by", "user")
    // Somebody's request that was never ended, for the reconciler; a prompt past its time, for the sweeper.
    yield* sql`INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed,
            client_ip, arrived_at, admitted_at, held, tokens_in, lease_until)
          SELECT gen_random_uuid(), tenant_id, id, prefix, 'm', '/api/chat', 'POST', true, '127.0.0.1',
            now() - interval '1 hour', now() - interval '1 hour', 5, 5, now() - interval '50 minutes'
          FROM api_keys WHERE prefix = ${prefix}`
    yield* sql`INSERT INTO prompt_log (request_id, key_id, expires_at, endpoint, prompt, answer)
          SELECT gen_random_uuid(), id, now() - interval '1 hour', '/api/chat', 'old', '' FROM api_keys`

    const gateway = yield* makeGatewayOnStores({
      DATABASE_URL: yield* urlOf("tollgate_gateway"),
      CONCURRENCY_LEASE_S: "3",
      PLAYGROUND_ENABLED: "true",
      MODEL_DISCOVERY_REFRESH_S: "1"
    })
    assert.strictEqual(yield* readiness(gateway), 200, gateway.printed())
    assert.match((yield* tollgateWith({ DATABASE_URL }, ["status"])).stdout, /^database +ok /m)
    const chat = post(gateway, secret, hello())
    const first = yield* eventually(chat, ({ status }) => status === 200)
    assert.strictEqual(first.status, 200, gateway.printed())
    assert.strictEqual(
      (yield* post(gateway, secret, { model: "embedder", input: "x" }, "/v1/embeddings")).status,
      200
    )
    assert.strictEqual((yield* post(gateway, secret, {}, "/api/pull")).status, 403)
    const uses = yield* ask(`${gateway.url}/api/usage`, { secret })
    assert.strictEqual(uses.status, 200)
    assert.include(uses.text, "embedder")

    const done = yield* eventually(
      sql<{ readonly open: number; readonly old: number; readonly kept: number }>`SELECT
            (SELECT count(*)::int FROM intents) AS open,
            (SELECT count(*)::int FROM prompt_log WHERE prompt = 'old') AS old,
            (SELECT count(*)::int FROM prompt_log WHERE prompt <> 'old') AS kept`,
      ([row]) => row?.open === 0 && row.old === 0 && row.kept >= 2
    )
    assert.deepInclude(done[0], { open: 0, old: 0 })
    assert.include((yield* tollgate("show-prompt-log", "--key", prefix)).stdout, "Hello")
    assert.include((yield* tollgate("show-usage", "--tenant", "t")).stdout, "t ")

    yield* as("tollgate_console", sql`INSERT INTO revocations (key_prefix) VALUES (${prefix})`)
    assert.strictEqual((yield* eventually(chat, ({ status }) => status === 401)).status, 401)
    assert.include((yield* tollgate("list-keys", "--tenant", "t")).stdout, "revoked")
    yield* tollgate("erase-prompt-log", "--key", prefix)
    assert.strictEqual(yield* gateway.stop, 0)
    assert.notMatch(gateway.printed(), /permission denied|42501/)
  })

  test("when an audit row must be corrected, then the role of the gateway may do it", function* () {
    yield* grant
    const intent = intentOf({ caller: callerOf() })
    const aborted = completionRow(endOf(intent, usageOf(5, 1), { status: 500, errorType: "aborted" }), utc)
    const ended = completionRow(endOf(intent, usageOf(5, 9)), utc)
    const corrected = yield* as(
      "tollgate_gateway",
      Effect.flatMap(PgClient.PgClient, (pg) =>
        Effect.andThen(
          Effect.andThen(writeRows(pg)([aborted]), writeRows(pg)([ended])),
          correctAudit(pg)([ended])
        )
      )
    )
    assert.deepInclude(corrected[0], { id: intent.arrival.requestId, tokens: 8 })
  })

  test("when a budget is warned of, then the role of the gateway may find it, name its user and note what became of it", function* () {
    yield* grant
    const [receiver, sql] = [yield* makeReceiver, yield* SqlClient.SqlClient]
    yield* sql`INSERT INTO tenants (name, rpm, tpm, concurrent) VALUES ('warned', 1, 1, 1)`
    yield* sql`
      INSERT INTO api_keys (tenant_id, name, prefix, hash, end_user_header, each_user_daily)
      SELECT id, 'webui', 'tg_WARNEDKEY', '$argon2id$', 'x-user', 10 FROM tenants WHERE name = 'warned'`
    yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, streamed,
        tokens_in, tokens_out, status, latency_ms, client_ip, end_user, user_account)
      SELECT gen_random_uuid(), now(), now(), tenant_id, id, prefix, 'POST', '/api/chat', false, 9, 0, 200, 1, '::1', 'ada', md5('ada')::uuid
      FROM api_keys WHERE prefix = 'tg_WARNEDKEY'`
    const done = sql`SELECT FROM budget_warnings WHERE sent_at IS NOT NULL`
    yield* as(
      "tollgate_gateway",
      Effect.scoped(
        Effect.andThen(
          Layer.build(layerBudgetWarnings({ url: receiver.url, secret: undefined, everyMs: 120 })).pipe(
            Effect.provide(Metrics.layer)
          ),
          eventually(done, (rows) => rows.length > 0)
        )
      )
    )
    assert.deepInclude(receiver.messages()[0], { scope: "user", user: "ada", percent: 90 })
  })

  test("when a role does another's work, then nobody changes the audit, the schema, or rows of another", function* () {
    yield* grant
    for (const role of ["tollgate_gateway", "tollgate_cli", "tollgate_console"] as const) {
      yield* refused(role, "UPDATE audit_log SET status = 200")
      yield* refused(role, "DELETE FROM audit_log")
      yield* refused(role, "TRUNCATE audit_log")
      yield* refused(role, "DROP TABLE audit_log")
      yield* refused(role, "UPDATE audit_corrections SET tokens_in = 0")
      yield* refused(role, "DELETE FROM audit_corrections")
      yield* refused(role, "CREATE TABLE mine (n int)")
      yield* refused(role, "CREATE TEMPORARY TABLE api_keys (n int)")
      yield* refused(role, "ALTER TABLE api_keys DROP COLUMN hash")
      yield* refused(role, "DELETE FROM revocations")
    }
    yield* refused("tollgate_gateway", "UPDATE api_keys SET status = 'active'")
    yield* refused(
      "tollgate_gateway",
      "INSERT INTO tenants (name, rpm, tpm, concurrent) VALUES ('x', 1, 1, 1)"
    )
    yield* refused("tollgate_gateway", "SELECT prompt FROM prompt_log")
    yield* refused("tollgate_gateway", "SELECT client_ip FROM audit_log")
    yield* refused("tollgate_cli", "UPDATE budget_warnings SET tries = 0")
    for (const role of ["tollgate_gateway", "tollgate_cli", "tollgate_console"] as const) {
      yield* refused(role, "SELECT prune_audit(now())")
      yield* refused(role, "UPDATE usage_daily SET tokens_in = 0")
      yield* refused(role, "DELETE FROM audit_log_default")
      yield* refused(role, "INSERT INTO audit_log_default SELECT * FROM audit_log")
    }
    yield* refused("tollgate_console", "SELECT prepare_audit_months()")
    yield* as("tollgate_gateway", sql`SELECT prepare_audit_months()`)
    yield* refused("tollgate_cli", "UPDATE ledger SET tokens_in = 0")
    yield* refused("tollgate_console", "SELECT * FROM api_keys")
    yield* refused("tollgate_console", "SELECT * FROM revocations")
  })
})
