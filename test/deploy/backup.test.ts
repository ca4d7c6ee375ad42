/** The operations guide's backup brings everything back: its own commands, on a real Postgres and with the real tools. */
import { spawnSync } from "node:child_process"
import { assert, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { assertSchema, migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { root } from "../support/Checkout.ts"
import { blocks, lines, readPaper } from "../support/Paper.ts"
import { makePostgresClusterWith } from "../support/servers/PostgresCluster.ts"
import { findPostgres } from "../support/servers/PostgresTools.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const commands = blocks(readPaper("docs/deploy.md"), "sh").flatMap(lines)
const [dump = "", clear = "", restore = "", roles = ""] = [
  /\bpg_dump\b/,
  /DROP DATABASE/,
  /\bpg_restore\b/,
  /^psql /
].map((word) => commands.find((command) => word.test(command)))

/** Some of everything that is worth keeping. */
const fill = Effect.gen(function* () {
  const [registry, sql] = [yield* Registry, yield* SqlClient.SqlClient]
  yield* registry.createTenant({ name: "t", allowAllModels: true })
  const { key } = yield* registry.createKey({ tenant: "t", name: "k" })
  const gone = yield* registry.createKey({ tenant: "t", name: "gone" })
  yield* registry.revokeKey(gone.key.prefix)
  yield* registry.changeKey(key.prefix, { budgetDaily: 1000 })
  yield* sql`INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    SELECT id, tenant_id, '2026-11-21', 7, 70, 9007199254740991 FROM api_keys`
  yield* sql`INSERT INTO audit_log (request_id, arrived_at, method, endpoint, streamed, tokens_in, tokens_out, status,
      latency_ms, client_ip)
    SELECT gen_random_uuid(), now(), 'POST', '/api/chat', true, n, n, 200, 1, '::1' FROM generate_series(1, 1000) AS n`
  yield* sql`INSERT INTO prompt_log (request_id, key_id, expires_at, endpoint, prompt, answer)
    SELECT gen_random_uuid(), id, now() + interval '1 day', '/api/chat', 'ö € 🚪', E'\\\\ "\\n' FROM api_keys`
  return key.prefix
})

const tables = [
  "tenants",
  "api_keys",
  "revocations",
  "intents",
  "audit_log",
  "audit_corrections",
  "ledger",
  "usage_daily",
  "prompt_log"
]

/** A fingerprint of every row of every table. */
const contents = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* Effect.forEach([...tables, "schema_migrations"], (table) =>
    Effect.map(
      sql<{ readonly rows: number; readonly sum: string | null }>`
        SELECT count(*)::int AS rows, md5(string_agg(t::text, '|' ORDER BY t::text)) AS sum FROM ${sql(table)} t`,
      ([row]) => [table, row?.rows, row?.sum] as const
    )
  )
})

const test = testWith(it.live)

test("when the database was lost, then the dump brings everything back, and keys can be revoked", function* () {
  const native = yield* findPostgres
  const cluster = yield* makePostgresClusterWith({}, { installed: native })
  const work = yield* temporaryFolder
  const at = new URL(Redacted.value(cluster.url("tollgate")))
  /** The guide's line, without the engine around it. */
  const type = (line: string) =>
    Effect.sync(() => {
      const command = line
        .replace("docker compose exec -T postgres ", "")
        .replace("deploy/", `${root}/deploy/`)
      const { status, stderr } = spawnSync("bash", ["-c", command], {
        cwd: work,
        encoding: "utf8",
        env: {
          PATH: `${native}/bin:/usr/bin:/bin`,
          PGHOST: "127.0.0.1",
          PGPORT: at.port,
          DATABASE_URL: at.href
        }
      })
      assert.strictEqual(status, 0, `${command}\n${stderr}`)
    })
  const inside = (database: string) =>
    layerPostgres({ url: cluster.url(database), maxConnections: 2, statementTimeoutMs: 60_000 })
  const emptied = Effect.gen(function* () {
    yield* sql`DROP DATABASE IF EXISTS tollgate WITH (FORCE)`
    yield* sql`CREATE DATABASE tollgate`
  }).pipe(Effect.provide(inside("postgres")))

  yield* emptied
  const { before, prefix } = yield* Effect.gen(function* () {
    yield* migrate
    const prefix = yield* fill.pipe(
      Effect.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }))
    )
    return { before: yield* contents, prefix }
  }).pipe(Effect.provide(inside("tollgate")))
  assert.deepInclude(
    before.map(([table, rows]) => `${table} ${rows}`),
    "audit_log 1000"
  )
  yield* type(roles)
  yield* type(dump)
  // Into nothing, and over what is there: the guide's lines have to do both.
  yield* emptied
  for (const line of [clear, restore, clear, restore]) yield* type(line)
  yield* type(roles)
  yield* Effect.gen(function* () {
    assert.deepStrictEqual(yield* contents, before)
    yield* assertSchema
    assert.deepStrictEqual(yield* migrate, [])
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${prefix})`
    const [key] = yield* sql`SELECT status FROM api_keys WHERE prefix = ${prefix}`
    assert.deepStrictEqual({ ...key }, { status: "revoked" })
  }).pipe(Effect.provide(inside("tollgate")))
})
