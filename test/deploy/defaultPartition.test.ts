/** `deploy/postgres/default-partition.sql`: what to do when the default partition of the audit log has become too large. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Ref, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { renderCause } from "../../src/observability/renderCause.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"

const file = readFileSync(
  path.resolve(import.meta.dirname, "../../deploy/postgres/default-partition.sql"),
  "utf8"
)

/** One by one: the protocol takes one at a time. A statement ends at a line's end before an empty one. */
const statements = file
  .replaceAll(/^--.*\n/gm, "")
  .split(/;\n(?:\n|$)/)
  .map((statement) => statement.trim())
  .filter((statement) => statement !== "")

const withoutTimeout = Layer.unwrap(
  Effect.map(TestDatabase, ({ url }) => layerPostgres({ url, maxConnections: 1, statementTimeoutMs: 0 }))
)

/** Rows of one key, `months` months after now, as a gateway writes them. */
const arrive = Effect.fnUntraced(function* (count: number, months: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
      streamed, tokens_in, tokens_out, status, latency_ms, client_ip)
    SELECT (left(first_request_id(at)::text, 14) || '7000-8000' || right(gen_random_uuid()::text, 13))::uuid,
      at, at, md5('tenant')::uuid, md5('key')::uuid, 'tg_000000001', 'POST', '/api/chat', 'm', true, 1, 2, 200, 1, '::1'
    FROM (SELECT date_trunc('month', now()) + ${months}::int * interval '1 month' + interval '3 days' AS at
      FROM generate_series(1, ${count}::int)) rows`
})

const partitions = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly name: string; readonly rows: number }>`
    SELECT tableoid::regclass::text AS name, count(*)::int AS rows FROM audit_log GROUP BY 1 ORDER BY 1`
).pipe(Effect.map((rows) => rows.map(({ name, rows }) => [name, rows] as const)))

const usage = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly n: number }>`SELECT coalesce(sum(requests), 0)::int AS n FROM usage_daily`
).pipe(Effect.map((rows) => rows[0]?.n))

it.live(
  "when the default partition is too large, then the file moves its rows to months while gateways write, and months are made again",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      // What happens while nobody makes months.
      yield* sql`DO $$ DECLARE name regclass; BEGIN
        FOR name IN SELECT partition FROM audit_partitions WHERE NOT is_default LOOP EXECUTE 'DROP TABLE ' || name; END LOOP;
      END $$`
      // Nearly empty pages: as large as 900,000 rows.
      yield* sql`ALTER TABLE audit_log_default SET (fillfactor = 10)`
      for (const month of [-1, 0, 1]) for (let part = 0; part < 6; part += 1) yield* arrive(8000, month)
      const tooLarge = yield* Effect.flip(sql`SELECT prepare_audit_months()`)
      assert.include(renderCause(tooLarge), "audit_log_default is too large")

      const written = yield* Ref.make(144_000)
      const writer = yield* arrive(1, 0).pipe(
        Effect.andThen(Ref.update(written, (n) => n + 1)),
        Effect.repeat(Schedule.spaced("5 millis")),
        Effect.provide(Layer.fresh(layerPostgres({ url: (yield* TestDatabase).url, maxConnections: 1 }))),
        Effect.forkScoped
      )
      const run = Effect.flatMap(SqlClient.SqlClient, (owner) =>
        Effect.forEach(statements, (statement) => owner.unsafe(statement))
      ).pipe(Effect.provide(Layer.fresh(withoutTimeout)))
      yield* run
      yield* run
      yield* Fiber.interrupt(writer)
      yield* arrive(1, 3)

      const found = yield* partitions
      const total = found.reduce((sum, [, rows]) => sum + rows, 0)
      // An interrupted insert may have been written.
      const [counted, booked] = [(yield* Ref.get(written)) + 1, yield* usage]
      assert.include([counted, counted + 1], total)
      assert.strictEqual(booked, total)
      assert.deepStrictEqual(
        found.map(([name]) => /^audit_log_\d{4}_\d\d$/.test(name)),
        [true, true, true, true]
      )
      assert.isAbove(total, 144_001)
      const [check] = yield* sql<{
        readonly made: number
        readonly leftovers: number
        readonly indexes: number
      }>`
        SELECT prepare_audit_months() AS made,
          (SELECT count(*)::int FROM pg_constraint WHERE conname = 'month_bounds') AS leftovers,
          (SELECT count(DISTINCT n)::int FROM (SELECT count(*) AS n FROM pg_index
            WHERE indrelid IN (SELECT partition FROM audit_partitions) GROUP BY indrelid) counts) AS indexes`
      assert.deepStrictEqual(check, { made: 0, leftovers: 0, indexes: 1 })
    }).pipe(Effect.scoped, Effect.provide(TestPostgres))
)
