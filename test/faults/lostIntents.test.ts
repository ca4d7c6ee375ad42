/** Intents do not wait for the disk. What holds when Postgres crashes before it has stored one. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { noon, callerOf, endOf, intentOf, refusalOf, usageOf } from "../support/records.ts"
import { auditSumsOf, hasIntent, ledgerOf, statusOf, storedRow } from "../support/auditDatabase.ts"
import { another } from "../support/anotherAudit.ts"
import { eventually } from "../support/Gateway.ts"
import { queuedFor } from "../support/permits.ts"
import { layerPrivatePostgres, TestCluster } from "../support/TestPostgres.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** Nothing but a commit that waits for the disk writes the log of this server. */
const lazy = { synchronous_commit: "on", wal_writer_delay: "10s", bgwriter_delay: "10s" }

/** Stops the server's own writer of the log, which else writes it within half a second. */
const freezeWalWriter = Effect.gen(function* () {
  // A server that has just started may not have it yet.
  const [writer] = yield* eventually(
    sql<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`,
    (rows) => rows.length === 1
  )
  assert.isDefined(writer)
  if (writer !== undefined) process.kill(writer.pid, "SIGSTOP")
})

const usageSums = (keyId: string) =>
  sql`
      SELECT day::text, requests::int, tokens_in::int, tokens_out::int, errors::int FROM usage_daily
      WHERE key_id = ${keyId}::text::uuid ORDER BY day`

const patient = { openTimeoutMs: 10_000, closeTimeoutMs: 10_000 }

testWith(it.live, layerPrivatePostgres({}, lazy))(
  "when Postgres crashes before it stores an intent, then its request is booked when it ends, and a running one gets its intent again",
  function* () {
    const cluster = yield* TestCluster
    const resting = yield* another({ ...patient, leaseS: 600 })
    // Ends with Postgres, as far as the store can tell: it has no heartbeat during the test.
    const dying = yield* another({ ...patient, leaseS: 600 })
    const caller = callerOf()
    const midnight = noon + 12 * 3_600_000
    const before = intentOf({ caller })
    yield* resting.open(queuedFor(before))
    yield* resting.close(endOf(before, usageOf(1, 1)))

    yield* freezeWalWriter
    // Its first heartbeat, which waits for the disk, comes 4 s after it is built: after the crash.
    const beating = yield* another({ ...patient, leaseS: 12 })
    const ending = intentOf({ caller, arrivedAt: midnight - 1000, admittedAt: midnight + 1000 })
    const [running, forgotten] = [intentOf({ caller }), intentOf({ caller })]
    yield* resting.open(queuedFor(ending))
    yield* beating.open(queuedFor(running))
    beating.progress(running.arrival.requestId, usageOf(5, 40), 200)
    yield* dying.open(queuedFor(forgotten))
    for (const { arrival } of [ending, running, forgotten]) assert.isTrue(yield* hasIntent(arrival.requestId))
    yield* cluster.kill
    yield* cluster.start

    const there = (requestId: string) => Effect.orElseSucceed(hasIntent(requestId), () => undefined)
    const gone = yield* eventually(there(ending.arrival.requestId), (intent) => intent !== undefined)
    assert.isFalse(gone, "the crash has lost the intent")
    assert.deepInclude(yield* storedRow(before.arrival.requestId), { status: 200 }, "a completion is kept")

    // A request that ends before the next heartbeat, on the day of its admission.
    const end = Effect.suspend(() => resting.close(endOf(ending, usageOf(7, 3))))
    yield* Effect.all([end, end], { concurrency: 2 })
    assert.deepInclude(yield* storedRow(ending.arrival.requestId), { status: 200, tokens_in: 7 })
    // One that runs on.
    const restored = Effect.map(
      sql`SELECT held::int, tokens_in::int, tokens_out::int, lease_until > now() AS leased FROM intents
      WHERE request_id = ${running.arrival.requestId}::text::uuid`,
      ([row]) => ({ ...row })
    )
    // It is written with what was reserved, and renewed with what it has used since.
    const renewed = yield* eventually(
      Effect.orElseSucceed(restored, () => ({})),
      (row) => "tokens_out" in row && row.tokens_out === 40
    )
    assert.deepStrictEqual(renewed, { held: 200, tokens_in: 5, tokens_out: 40, leased: true })
    yield* beating.close(endOf(running, usageOf(5, 50)))
    assert.isFalse(yield* hasIntent(running.arrival.requestId))

    assert.isFalse(yield* hasIntent(forgotten.arrival.requestId))
    assert.isUndefined(
      yield* storedRow(forgotten.arrival.requestId),
      "nothing tells of a request whose process ended too (docs/threat-model.md)"
    )
    const sums = yield* auditSumsOf(caller.keyId)
    assert.deepStrictEqual(sums, [
      { day: "2026-11-21", requests: 2, tokensIn: 6, tokensOut: 51 },
      { day: "2026-11-22", requests: 1, tokensIn: 7, tokensOut: 3 }
    ])
    assert.deepStrictEqual(yield* ledgerOf(caller.keyId), sums)
    assert.deepStrictEqual(
      (yield* usageSums(caller.keyId)).map((row) => ({ ...row })),
      sums.map(({ day, requests, tokensIn, tokensOut }) => ({
        day,
        requests,
        tokens_in: tokensIn,
        tokens_out: tokensOut,
        errors: 0
      }))
    )
  }
)

const test = testWith(it.live, layerPrivatePostgres())

test("when the database has lost intents, then that of a request whose completion waits is not written again", function* () {
  const sql = yield* SqlClient.SqlClient
  const audit = yield* another({ ...patient, leaseS: 3 })
  const [ending, running] = [intentOf(), intentOf()]
  for (const intent of [ending, running]) yield* audit.open(queuedFor(intent))
  const [locked, release] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  const locking = sql.withTransaction(
    Effect.andThen(
      sql`LOCK TABLE audit_log IN SHARE ROW EXCLUSIVE MODE`,
      Effect.andThen(Deferred.succeed(locked, undefined), Deferred.await(release))
    )
  )
  const writer = yield* Effect.forkChild(locking)
  yield* Deferred.await(locked)
  // The heartbeat waits for this transaction, so it finds both intents gone when one of the requests has ended.
  const written = yield* sql.withTransaction(
    Effect.gen(function* () {
      yield* sql`LOCK TABLE intents IN SHARE ROW EXCLUSIVE MODE`
      yield* sql`DELETE FROM intents`
      return yield* Effect.forkDetach(audit.close(endOf(ending, usageOf(7, 3))), {
        startImmediately: true
      })
    })
  )
  assert.isTrue(yield* eventually(hasIntent(running.arrival.requestId), Boolean))
  assert.isFalse(yield* hasIntent(ending.arrival.requestId))
  yield* Deferred.succeed(release, undefined)
  yield* Fiber.join(writer)
  yield* Fiber.join(written)
  assert.deepInclude(yield* storedRow(ending.arrival.requestId), { status: 200, tokens_in: 7 })
  assert.isFalse(yield* hasIntent(ending.arrival.requestId))
})

test("when the completion of a request cannot be written, then its intent gets the final figures", function* () {
  const audit = yield* another({ ...patient, leaseS: 3 })
  const ending = intentOf()
  const { requestId } = ending.arrival
  yield* audit.open(queuedFor(ending))
  yield* sql`
        CREATE FUNCTION report_full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$`
  yield* sql`
        CREATE TRIGGER full_disk BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION report_full_disk()`
  const written = yield* Effect.forkChild(audit.close(endOf(ending, usageOf(7, 3))))
  const figures = Effect.map(
    sql<{ tokens_out: string }>`SELECT tokens_out::text FROM intents WHERE request_id = ${requestId}`,
    ([intent]) => intent?.tokens_out
  )
  assert.isTrue(
    yield* eventually(
      Effect.map(figures, (tokensOut) => tokensOut === "3"),
      Boolean
    )
  )
  yield* sql`DROP TRIGGER full_disk ON audit_log`
  yield* Fiber.join(written)
  assert.deepInclude(yield* storedRow(requestId), { status: 200, tokens_in: 7, tokens_out: 3 })
  assert.isFalse(yield* hasIntent(requestId))
})

testWith(it.live, layerPrivatePostgres({ maxConnections: 1 }, lazy))(
  "when rows are committed, then only an intent does not wait for the disk, and the setting does not outlive it",
  function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`CREATE TABLE commits (what text, setting text)`
    yield* sql`
    CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO commits VALUES (TG_OP || ' ' || TG_TABLE_NAME, current_setting('synchronous_commit'));
      RETURN NULL;
    END $$`
    for (const [table, verbs] of [
      ["intents", ["INSERT", "UPDATE", "DELETE"]],
      ["audit_log", ["INSERT"]]
    ] as const) {
      for (const verb of verbs)
        yield* sql`
        CREATE TRIGGER ${sql(`note_${verb.toLowerCase()}`)} AFTER ${sql.literal(verb)} ON ${sql(table)}
        EXECUTE FUNCTION note_commit()`
    }
    const audit = yield* another({ ...patient, leaseS: 0.6 })
    const [intent, refused] = [intentOf(), refusalOf()]
    yield* audit.open(queuedFor(intent))
    const settings = (what: string) =>
      Effect.map(
        sql<{ readonly setting: string }>`SELECT DISTINCT setting FROM commits WHERE what = ${what}`,
        (rows) => rows.map(({ setting }) => setting)
      )
    yield* eventually(settings("UPDATE intents"), (found) => found.length > 0)
    yield* audit.close(endOf(intent, usageOf(1, 1)))
    yield* audit.refuse(refused)
    assert.strictEqual(yield* statusOf(refused.arrival.requestId), 401)
    assert.deepStrictEqual(yield* settings("INSERT intents"), ["off"])
    for (const what of ["UPDATE intents", "DELETE intents", "INSERT audit_log"])
      assert.deepStrictEqual(yield* settings(what), ["on"], what)
  }
)
