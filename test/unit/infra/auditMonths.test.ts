/** The monthly partitions of the audit log: who makes and drops them, and what stays. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { isSqlError } from "effect/sql/SqlError"
import { layerAuditMonths, pruneStep } from "../../../src/audit/months.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { eventually } from "../../support/Gateway.ts"
import { TestDatabase, TestPostgres } from "../../support/TestPostgres.ts"
import { atMost, makeStopwatch } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

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

const partitions = sql<{ readonly name: string; readonly rows: number }>`
    SELECT tableoid::regclass::text AS name, count(*)::int AS rows FROM audit_log GROUP BY 1 ORDER BY 1`.pipe(
  Effect.map((rows) => Object.fromEntries(rows.map(({ name, rows }) => [name, rows])))
)

const count = (table: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM ${sql(table)}`
  ).pipe(Effect.map((rows) => rows[0]?.n))

const test = testWith(it.live, TestPostgres)

test("when a month has no partition, then its rows are kept in the default partition, and it stays there", function* () {
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
})

/** Partitions of the last `months` months, which a gateway would have made in their time, and one of all that is older. */
const makePast = Effect.fnUntraced(function* (months: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DO $$
    DECLARE month timestamptz;
    BEGIN
      FOR n IN 1..${sql.literal(String(months))} LOOP
        month := date_trunc('month', now()) - n * interval '1 month';
        EXECUTE format('CREATE TABLE %I PARTITION OF audit_log FOR VALUES FROM (%L) TO (%L)',
          to_char(month, '"audit_log_"YYYY_MM'), first_request_id(month), first_request_id(month + interval '1 month'));
      END LOOP;
      EXECUTE format('CREATE TABLE audit_log_old PARTITION OF audit_log FOR VALUES FROM (MINVALUE) TO (%L)', first_request_id(month));
    END $$`
})

const pruneAll = Effect.fnUntraced(function* (days: number) {
  const sql = yield* SqlClient.SqlClient
  const removed: Array<string> = []
  for (;;) {
    const step = yield* pruneStep(sql, days)
    if (step === undefined) return removed
    removed.push(step.relation)
  }
})

test("when old rows are removed, then whole months go, the younger ones stay, and ledger and usage do not change", function* () {
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
})

test("when a gateway runs with a retention, then it makes the coming months and drops the old ones; without, it drops none", function* () {
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
  // Of the last three months the two that ended more than 40 days ago are gone, one when the month is young.
  const left = yield* eventually(
    names,
    (found) => !found.has("audit_log_old") && found.size <= before.size + 1
  ).pipe(Effect.provide(running(40)))
  assert.include([before.size, before.size + 1], left.size)
  assert.isTrue(left.has("audit_log_default"))
})

test("when somebody reads an old month for long, then the drop gives up soon, and writers go on", function* () {
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
        const began = makeStopwatch()
        yield* arrive(1, "now()")
        const took = began()
        const error = yield* Fiber.join(pruning)
        assert.isTrue(isSqlError(error) && error.reason._tag === "LockTimeoutError", String(error))
        return took
      }).pipe(Effect.provide(other))
      assert.isBelow(took, atMost(1500))
    })
  )
  assert.strictEqual((yield* pruneAll(1)).length, 3)
})
