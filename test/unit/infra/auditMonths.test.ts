/** The monthly partitions of the audit log: how an existing log gets them, who makes and drops them, and what stays. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrator from "effect/sql/Migrator"
import { isSqlError } from "effect/sql/SqlError"
import { layerAuditMonths, pruneStep } from "../../../src/audit/months.ts"
import { migrate, migrations } from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { eventually } from "../../support/Gateway.ts"
import { TestDatabase, TestPostgres } from "../../support/TestPostgres.ts"
import { atMost } from "../../support/wait.ts"

/** The schema before the partitions. */
const migrateBefore = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP SCHEMA public CASCADE`
  yield* sql`CREATE SCHEMA public`
  const before = Object.entries(migrations).filter(([name]) => name < "0011")
  yield* Migrator.make({})({
    loader: Migrator.fromRecord(Object.fromEntries(before)),
    table: "schema_migrations"
  })
})

/** Rows of the log with ids of their time of arrival, as the gateway makes them. `at` is SQL and may use `n`. */
const arrive = Effect.fnUntraced(function* (count: number, at: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
      streamed, tokens_in, tokens_out, status, latency_ms, client_ip)
    SELECT overlay((lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000' || repeat('0', 16))
        PLACING lpad(to_hex((random() * 1e9)::bigint), 12, '0') FROM 21)::uuid,
      at, at, md5('tenant')::uuid, md5('key')::uuid, 'tg_000000001', 'POST', '/api/chat', 'm', true, 1, 2, 200, 1, '::1'
    FROM (SELECT ${sql.literal(at)} AS at FROM generate_series(1, ${count}::int) n) rows`
})

const partitions = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<{ readonly name: string; readonly rows: number }>`
    SELECT tableoid::regclass::text AS name, count(*)::int AS rows FROM audit_log GROUP BY 1 ORDER BY 1`
).pipe(Effect.map((rows) => Object.fromEntries(rows.map(({ name, rows }) => [name, rows]))))

const count = (table: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM ${sql(table)}`
  ).pipe(Effect.map((rows) => rows[0]?.n))

/** What a gateway of an older version writes. */
const writeOnce = (id: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`
      INSERT INTO audit_log (request_id, arrived_at, method, endpoint, streamed, tokens_in, tokens_out, status, latency_ms,
        client_ip)
      VALUES (${id}::text::uuid, now(), 'POST', '/api/chat', false, 0, 0, 403, 1, '::1')
      ON CONFLICT (request_id) DO NOTHING RETURNING request_id`
  ).pipe(Effect.map((rows) => rows.length))

it.live(
  "when a log with rows is migrated, then it becomes the first partition as it is, with its rows, indexes and rights",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* migrateBefore
      yield* arrive(500, "now() - n * interval '1 day'")
      yield* arrive(2, "timestamptz '2090-01-01' + n * interval '1 day'")
      const [{ id: newest }] = yield* sql<{ id: string }>`
        SELECT request_id::text AS id FROM audit_log WHERE arrived_at < now() ORDER BY request_id DESC LIMIT 1`.pipe(
        Effect.map((rows) => [rows[0] ?? { id: "" }] as const)
      )
      const oids = sql<{ readonly oid: number }>`
        SELECT indexrelid::int AS oid FROM pg_index WHERE indrelid = 'audit_log'::regclass AND indisprimary`
      const before = yield* oids
      yield* sql`DO $$ BEGIN IF to_regrole('months_writer') IS NULL THEN CREATE ROLE months_writer; END IF; END $$`
      yield* sql`GRANT INSERT, SELECT (request_id, status) ON audit_log TO months_writer`

      yield* migrate
      assert.deepStrictEqual(yield* partitions, { audit_log_old: 500, audit_log_default: 2 })
      assert.deepStrictEqual(
        yield* sql`SELECT indexrelid::int AS oid FROM pg_index WHERE indrelid = 'audit_log_old'::regclass AND indisprimary`,
        before,
        "the primary key was built anew"
      )
      const [kinds] = yield* sql<{ readonly old: number; readonly month: number }>`SELECT
        (SELECT count(*)::int FROM pg_index WHERE indrelid = 'audit_log_old'::regclass AND indisvalid) AS old,
        (SELECT count(*)::int FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indrelid
          WHERE inhparent = 'audit_log'::regclass AND indrelid <> 'audit_log_old'::regclass
            AND indrelid <> 'audit_log_default'::regclass AND indisvalid) AS month`
      const months = yield* sql`SELECT FROM audit_partitions WHERE name ~ '^audit_log_[0-9]{4}_[0-9]{2}$'`
      // The partition of today ends in one to two months.
      assert.include([2, 3], months.length)
      assert.deepStrictEqual({ ...kinds }, { old: 4, month: 4 * months.length })

      assert.strictEqual(yield* writeOnce(newest), 0, "a row of before is written twice")
      assert.strictEqual(yield* writeOnce("01a00000-0000-7000-8000-000000000001"), 1)
      assert.strictEqual(yield* writeOnce("01a00000-0000-7000-8000-000000000001"), 0)
      const [rights] =
        yield* sql`SELECT has_table_privilege('months_writer', 'audit_log', 'INSERT') AS writes,
        has_table_privilege('months_writer', 'audit_log', 'SELECT') AS reads,
        has_column_privilege('months_writer', 'audit_log', 'status', 'SELECT') AS status,
        has_table_privilege('months_writer', 'audit_log_old', 'INSERT') AS past`
      assert.deepStrictEqual({ ...rights }, { writes: true, reads: false, status: true, past: false })
    }).pipe(Effect.provide(TestPostgres))
)

it.live("when gateways write while a log is migrated, then no row is refused or lost", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* migrateBefore
    yield* arrive(20_000, "now() - n * interval '1 minute'")
    const { socket } = yield* TestDatabase
    const writing = yield* Effect.forkChild(
      Effect.gen(function* () {
        let written = 0
        for (;;) {
          yield* arrive(1, "clock_timestamp()")
          written += 1
          if (written % 50 === 0 && (yield* count("schema_migrations")) === Object.keys(migrations).length)
            return written
        }
      }).pipe(Effect.provide(Layer.fresh(layerPostgres({ url: socket, maxConnections: 1 }))))
    )
    yield* migrate
    const written = yield* Fiber.join(writing)
    assert.strictEqual(yield* count("audit_log"), 20_000 + written)
    const [row] = yield* sql`SELECT relkind::text AS kind FROM pg_class WHERE oid = 'audit_log'::regclass`
    assert.deepStrictEqual({ ...row }, { kind: "p" })
  }).pipe(Effect.provide(TestPostgres))
)

it.live(
  "when a month has no partition, then its rows are kept in the default partition, and it stays there",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const prepare = sql<{ readonly made: number }>`SELECT prepare_audit_months() AS made`.pipe(
        Effect.map((rows) => rows[0]?.made)
      )
      assert.strictEqual(yield* prepare, 0)
      for (const months of ["2 months", "3 months"]) {
        yield* sql`DO $$ BEGIN
        EXECUTE 'DROP TABLE ' || to_char(date_trunc('month', now()) + interval '${sql.literal(months)}', '"audit_log_"YYYY_MM');
      END $$`
      }
      yield* arrive(3, "date_trunc('month', now()) + interval '2 months 2 days'")
      assert.deepStrictEqual(yield* partitions, { audit_log_default: 3 })
      // The third month is made, the second stays in the default partition.
      assert.strictEqual(yield* prepare, 1)
      assert.strictEqual(yield* prepare, 0)
      yield* arrive(1, "date_trunc('month', now()) + interval '2 months 3 days'")
      assert.deepStrictEqual(yield* partitions, { audit_log_default: 4 })
    }).pipe(Effect.provide(TestPostgres))
)

/** Partitions of the last `months` months, which a gateway would have made in their time. */
const makePast = Effect.fnUntraced(function* (months: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE audit_log DETACH PARTITION audit_log_old`
  yield* sql`DO $$
    DECLARE month timestamptz;
    BEGIN
      FOR n IN 1..${sql.literal(String(months))} LOOP
        month := date_trunc('month', now()) - n * interval '1 month';
        EXECUTE format('CREATE TABLE %I PARTITION OF audit_log FOR VALUES FROM (%L) TO (%L)',
          to_char(month, '"audit_log_"YYYY_MM'), first_request_id(month), first_request_id(month + interval '1 month'));
      END LOOP;
      EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_old FOR VALUES FROM (MINVALUE) TO (%L)', first_request_id(month));
    END $$`
})

const pruneAll = (days: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const removed: Array<string> = []
    for (;;) {
      const step = yield* pruneStep(sql, days)
      if (step === undefined) return removed
      removed.push(step.relation)
    }
  })

it.live(
  "when old rows are removed, then whole months go, the younger ones stay, and ledger and usage do not change",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* makePast(4)
      // The 15th of this month and of each of the last seven months: 100 rows each.
      yield* arrive(800, "date_trunc('month', now()) + interval '14 days' - (n % 8) * interval '1 month'")
      yield* sql`INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT md5('key')::uuid, md5('tenant')::uuid, '2020-01-01', 800, 800, 1600`
      yield* sql`INSERT INTO audit_corrections (request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out, status)
      SELECT request_id, tenant_id, key_id, admitted_at, 1, 1, 200 FROM audit_log`
      // An id that is no UUIDv7, so its row is in no month.
      yield* sql`INSERT INTO audit_log (request_id, arrived_at, method, endpoint, streamed, tokens_in, tokens_out, status,
        latency_ms, client_ip)
      VALUES ('f0000000-0000-4000-8000-000000000000', now() - interval '1 year', 'GET', '/', false, 0, 0, 403, 1, '::1')`
      const usage =
        yield* sql`SELECT sum(requests)::int AS r, sum(tokens_in)::int AS i, sum(tokens_out)::int AS o FROM usage_daily`
      const [{ days }] = yield* sql<{ days: number }>`
      SELECT extract(day FROM now() - (date_trunc('month', now()) - interval '2 months'))::int AS days`.pipe(
        Effect.map((rows) => [rows[0] ?? { days: 0 }] as const)
      )

      const removed = yield* pruneAll(days)
      const name = (ago: number) =>
        Effect.map(
          sql<{
            readonly name: string
          }>`SELECT to_char(date_trunc('month', now()) - ${ago}::int * interval '1 month',
          '"audit_log_"YYYY_MM') AS name`,
          (rows) => rows[0]?.name ?? ""
        )
      assert.deepStrictEqual(removed, [
        "audit_log_old",
        yield* name(4),
        yield* name(3),
        "audit_log_default",
        "audit_corrections"
      ])
      assert.deepStrictEqual(yield* partitions, {
        [yield* name(2)]: 100,
        [yield* name(1)]: 100,
        [yield* name(0)]: 100
      })
      assert.strictEqual(yield* count("audit_corrections"), 300)
      assert.strictEqual(yield* count("ledger"), 1)
      assert.deepStrictEqual(
        yield* sql`SELECT sum(requests)::int AS r, sum(tokens_in)::int AS i, sum(tokens_out)::int AS o FROM usage_daily`,
        usage
      )
      // A day at least, and never this month.
      assert.deepStrictEqual(yield* pruneAll(-1000), [yield* name(2), yield* name(1), "audit_corrections"])
      assert.deepStrictEqual(yield* partitions, { [yield* name(0)]: 100 })
    }).pipe(Effect.provide(TestPostgres))
)

it.live(
  "when a gateway runs with a retention, then it makes the coming months and drops the old ones; without, it drops none",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const names = Effect.map(
        sql<{ readonly name: string }>`SELECT name FROM audit_partitions`,
        (rows) => new Set(rows.map(({ name }) => name))
      )
      const before = yield* names
      const next = [...before].toSorted().findLast((name) => /\d$/.test(name)) ?? ""
      yield* sql`DROP TABLE ${sql(next)}`
      yield* makePast(3)
      const running = (retentionDays: number | undefined) =>
        Layer.fresh(layerAuditMonths({ retentionDays, everyS: 0.05 }).pipe(Layer.provide(Metrics.layer)))
      yield* Effect.gen(function* () {
        yield* eventually(names, (found) => found.has(next))
        yield* Effect.sleep("200 millis")
        assert.isTrue((yield* names).has("audit_log_old"))
      }).pipe(Effect.provide(running(undefined)))
      yield* eventually(names, (found) => !found.has("audit_log_old")).pipe(
        Effect.andThen(Effect.sleep("1 second")),
        Effect.provide(running(40))
      )
      // Of the last three months the two that ended more than 40 days ago are gone, one when the month is young.
      const left = yield* names
      assert.include([before.size, before.size + 1], left.size)
      assert.isTrue(left.has("audit_log_default"))
    }).pipe(Effect.provide(TestPostgres))
)

it.live("when somebody reads an old month for long, then the drop gives up soon, and writers go on", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* makePast(2)
    yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`SELECT count(*) FROM audit_log`
        const other = Layer.fresh(layerPostgres({ url: (yield* TestDatabase).socket, maxConnections: 2 }))
        const took = yield* Effect.gen(function* () {
          const pruning = yield* Effect.forkChild(
            Effect.flatMap(SqlClient.SqlClient, (mine) => Effect.flip(pruneStep(mine, 1)))
          )
          yield* Effect.sleep("50 millis")
          const began = performance.now()
          yield* arrive(1, "now()")
          const took = performance.now() - began
          const error = yield* Fiber.join(pruning)
          assert.isTrue(isSqlError(error) && error.reason._tag === "LockTimeoutError", String(error))
          return took
        }).pipe(Effect.provide(other))
        assert.isBelow(took, atMost(1500))
      })
    )
    assert.strictEqual((yield* pruneAll(1)).length, 3)
  }).pipe(Effect.provide(TestPostgres))
)

it.live(
  "when an index is built by several processes at once, then it is built once; an interrupted one is built anew",
  () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* migrateBefore
      yield* arrive(1000, "now() - n * interval '1 minute'")
      yield* sql`CREATE INDEX audit_log_completed ON audit_log (completed_at)`
      yield* sql`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'audit_log_completed'::regclass`
      const { socket } = yield* TestDatabase
      const another = migrate.pipe(
        Effect.provide(Layer.fresh(layerPostgres({ url: socket, maxConnections: 1 })))
      )
      const runs = yield* Effect.all([another, another, another], { concurrency: "unbounded" })
      assert.deepStrictEqual(
        runs.flat().sort(),
        Object.keys(migrations).filter((name) => name >= "0011")
      )
      const [row] = yield* sql`SELECT bool_and(indisvalid) AS valid, count(*)::int AS n FROM pg_index
      WHERE indrelid = 'audit_log_old'::regclass`
      assert.deepStrictEqual({ ...row }, { valid: true, n: 4 })
    }).pipe(Effect.provide(TestPostgres))
)
