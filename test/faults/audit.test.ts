/** The audit on a real Postgres that stops, freezes, is locked, or forgets to answer. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { Audit } from "../../src/audit/Audit.ts"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerLiveAudit } from "../contract/auditWorld.ts"
import { auditSumsOf, hasIntent, ledgerOf, statusOf, storedRow } from "../support/auditDatabase.ts"
import { another, openTimeoutMs, patience } from "../support/anotherAudit.ts"
import { eventually } from "../support/Gateway.ts"
import { callerOf, endOf, intentOf, refusalOf, usageOf } from "../support/records.ts"
import { layerPrivatePostgres, TestCluster, TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { queuedFor } from "../support/permits.ts"
import { makeStopwatch, atMost } from "../support/wait.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const startedAt = makeStopwatch()
    return Effect.map(Effect.exit(effect), (exit) => ({ exit, ms: startedAt() }))
  })

const refusedInTime = (
  outcome: { readonly exit: Exit.Exit<unknown, unknown>; readonly ms: number },
  ms: number
) => {
  assert.isTrue(Exit.isFailure(outcome.exit), "it went through")
  assert.isBelow(outcome.ms, atMost(ms))
}

/** Holds `table` against everybody until the scope ends. */
const lock = Effect.fnUntraced(function* (table: string) {
  const { socket } = yield* TestDatabase
  const services = yield* Layer.build(
    layerPostgres({ url: socket, maxConnections: 1, statementTimeoutMs: 0 })
  )
  const sql = Context.get(services, SqlClient.SqlClient)
  yield* sql.reserve.pipe(
    Effect.tap((connection) => connection.executeRaw("BEGIN", [])),
    Effect.tap((connection) =>
      Effect.addFinalizer(() => Effect.ignore(connection.executeRaw("ROLLBACK", [])))
    ),
    Effect.tap((connection) => connection.executeRaw(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`, []))
  )
})

for (const fault of ["stopped", "frozen"] as const) {
  testWith(it.live, Layer.provideMerge(layerLiveAudit(patience), layerPrivatePostgres()))(
    `when the database is ${fault}, then nothing is admitted, nothing is lost, and all works again afterwards`,
    function* () {
      const [audit, ledger, cluster] = [yield* Audit, yield* Ledger, yield* TestCluster]
      const caller = callerOf()
      const running = intentOf({ caller })
      yield* audit.open(queuedFor(running))
      yield* fault === "stopped" ? cluster.stop : cluster.pause

      const late = intentOf({ caller })
      refusedInTime(yield* timed(audit.open(queuedFor(late))), openTimeoutMs + 300)
      refusedInTime(
        yield* timed(ledger.spent({ group: caller.tenantId, key: caller.accountId }, Date.now(), "total")),
        1500
      )
      const refusal = refusalOf({ caller, status: 429 })
      const refused = yield* timed(audit.refuse(refusal))
      assert.isTrue(Exit.isSuccess(refused.exit), "a refusal keeps its status")
      assert.isBelow(refused.ms, atMost(600))
      const list = refusalOf({ caller, status: 200 })
      refusedInTime(yield* timed(audit.refuse(list)), 600)
      yield* audit.refuse(endOf(late, usageOf(0, 0), { status: 503 }))
      refusedInTime(yield* timed(Effect.suspend(() => audit.close(endOf(running, usageOf(7, 3))))), 1500)

      yield* fault === "stopped" ? cluster.start : cluster.resume
      const id = running.arrival.requestId
      const row = yield* eventually(
        Effect.orElseSucceed(storedRow(id), () => undefined),
        Boolean
      )
      assert.deepInclude(row, { tokens_in: 7, tokens_out: 3 })
      // A frozen server may have stored the rows of two answers before their clients got a 503: these are corrected.
      for (const late of [id, list.arrival.requestId]) {
        const status = yield* eventually(statusOf(late), (status) => status === 503)
        assert.strictEqual(status, 503, "the log says what the client got")
      }
      for (const [record, status] of [
        [refusal, 429],
        [endOf(late, usageOf(0, 0)), 503]
      ] as const) {
        const stored = yield* eventually(storedRow(record.arrival.requestId), Boolean)
        assert.deepInclude(stored, { status })
      }
      assert.isFalse(yield* hasIntent(id))
      assert.isFalse(
        yield* eventually(hasIntent(late.arrival.requestId), (there) => !there),
        "nobody waited for this intent, so it is not there"
      )
      const next = intentOf({ caller })
      yield* eventually(Effect.exit(audit.open(queuedFor(next))), Exit.isSuccess)
      yield* audit.close(endOf(next, usageOf(1, 1)))
      const days = yield* ledgerOf(caller.keyId)
      assert.deepStrictEqual(days, yield* auditSumsOf(caller.keyId))
      assert.deepInclude(days[0], { requests: 2, tokensIn: 8, tokensOut: 4 })
    }
  )
}

testWith(it.live, Layer.provideMerge(layerLiveAudit(patience), TestPostgres))(
  "when the log is locked, then completions are late, admission stops, refusals keep their status, and all recovers",
  function* () {
    const audit = yield* Audit
    const caller = callerOf()
    const running = intentOf({ caller })
    yield* audit.open(queuedFor(running))
    yield* Effect.gen(function* () {
      yield* lock("audit_log")
      refusedInTime(yield* timed(Effect.suspend(() => audit.close(endOf(running, usageOf(7, 3))))), 1500)
      refusedInTime(yield* timed(audit.open(queuedFor(intentOf({ caller })))), 50)
      assert.isTrue(Exit.isSuccess((yield* timed(audit.refuse(refusalOf()))).exit))
    }).pipe(Effect.scoped)
    const id = running.arrival.requestId
    assert.deepInclude(
      yield* eventually(storedRow(id), Boolean),
      { status: 200, tokens_in: 7 },
      "the database had the row already when its client got a 503"
    )
    assert.strictEqual(yield* eventually(statusOf(id), (status) => status === 503), 503)
    const next = intentOf({ caller })
    yield* eventually(Effect.exit(audit.open(queuedFor(next))), Exit.isSuccess)
    yield* audit.close(endOf(next, usageOf(1, 0)))
    assert.deepStrictEqual(yield* ledgerOf(caller.keyId), yield* auditSumsOf(caller.keyId))
  }
)

testWith(it.live, Layer.provideMerge(layerLiveAudit(patience), TestPostgres))(
  "when a row is late before anybody waits for it, then it has the 503 that its client will get",
  function* () {
    const [audit, caller] = [yield* Audit, callerOf()]
    const first = intentOf({ caller })
    const others = [200, 502, 499].map((status) => ({ intent: intentOf({ caller }), status }))
    for (const { intent } of [{ intent: first }, ...others]) yield* audit.open(queuedFor(intent))
    const { written } = yield* Effect.gen(function* () {
      yield* lock("audit_log")
      const writing = yield* Effect.forkScoped(Effect.exit(audit.close(endOf(first, usageOf(7, 3)))))
      yield* Effect.sleep("50 millis")
      // Their counters are settled meanwhile.
      const written = others.map(({ intent, status }) =>
        audit.close(endOf(intent, usageOf(5, 1), { status, errorType: "any" }))
      )
      yield* Fiber.join(writing)
      yield* Effect.sleep("200 millis")
      return { written }
    }).pipe(Effect.scoped)
    const statuses = yield* Effect.forEach(others, ({ intent }) =>
      Effect.map(eventually(storedRow(intent.arrival.requestId), Boolean), (row) => row?.status)
    )
    // A client that left was told nothing.
    assert.deepStrictEqual(statuses, [503, 503, 499])
    for (const late of written) assert.isTrue(Exit.isFailure(yield* Effect.exit(late)))
    assert.deepStrictEqual(yield* ledgerOf(caller.keyId), yield* auditSumsOf(caller.keyId))
  }
)

testWith(it.live, Layer.provideMerge(layerLiveAudit({ ...patience, anonymousCapacity: 100 }), TestPostgres))(
  "when refusals come as a flood during an outage, then they stay within their bound and do not delay paying clients",
  function* () {
    const audit = yield* Audit
    const caller = callerOf()
    yield* Effect.gen(function* () {
      yield* lock("audit_log")
      const outcomes = yield* Effect.forEach(
        Array.from({ length: 500 }, () => refusalOf()),
        (record) => Effect.exit(audit.refuse(record)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(outcomes.filter(Exit.isSuccess).length, 100)
      const known = yield* timed(audit.refuse(refusalOf({ caller, status: 429 })))
      assert.isTrue(Exit.isSuccess(known.exit))
    }).pipe(Effect.scoped)
    const intent = intentOf({ caller })
    yield* eventually(Effect.exit(audit.open(queuedFor(intent))), Exit.isSuccess)
    yield* audit.close(endOf(intent, usageOf(1, 1)))
    const count = Effect.map(
      sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM audit_log`,
      ([row]) => row?.n ?? 0
    )
    assert.strictEqual(yield* eventually(count, (n) => n === 102), 102)
  }
)

const test = testWith(it.live, TestPostgres)

test("when two processes close requests of the same keys at once, then their sums agree to the token, without a deadlock", function* () {
  const generous = { openTimeoutMs: 20_000, closeTimeoutMs: 20_000 }
  const audits = [yield* another(generous), yield* another(generous)]
  const callers = Array.from({ length: 10 }, () => callerOf())
  const intents = Array.from({ length: 1000 }, (_, n) => intentOf({ caller: callers[n % 10] ?? callerOf() }))
  yield* Effect.forEach(
    audits.flatMap((audit, process) =>
      intents.map((intent, n) =>
        // Every tenth request is ended by both, as a crash that was none would have it.
        n % 2 === process || n % 10 === 0
          ? Effect.andThen(
              audit.open(queuedFor(intent)),
              Effect.suspend(() => audit.close(endOf(intent, usageOf(n, 1))))
            )
          : Effect.void
      )
    ),
    (work) => work,
    { concurrency: "unbounded", discard: true }
  )
  for (const [index, { keyId }] of callers.entries()) {
    const expected = intents.reduce((sum, _, n) => (n % 10 === index ? sum + n : sum), 0)
    const days = yield* ledgerOf(keyId)
    assert.deepInclude(days[0], { requests: 100, tokensIn: expected, tokensOut: 100 })
    assert.deepStrictEqual(days, yield* auditSumsOf(keyId))
  }
  const deadlocks = yield* sql<{ readonly n: number }>`
        SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()`
  assert.strictEqual(deadlocks[0]?.n, 0)
})

testWith(it.live, Layer.provideMerge(layerLiveAudit({ ...patience, closeTimeoutMs: 10_000 }), TestPostgres))(
  "when a connection is cut while rows are written, then they are written again and counted once",
  function* () {
    const [audit, sql] = [yield* Audit, yield* SqlClient.SqlClient]
    const caller = callerOf()
    const killer = yield* sql`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()`.pipe(
      Effect.ignore,
      Effect.delay("3 millis"),
      Effect.forever,
      Effect.forkChild
    )
    const closed = yield* Effect.forEach(
      Array.from({ length: 300 }),
      () => {
        const intent = intentOf({ caller })
        return Effect.exit(Effect.suspend(() => audit.close(endOf(intent, usageOf(2, 1)))))
      },
      { concurrency: 3 }
    )
    yield* Fiber.interrupt(killer)
    assert.strictEqual(closed.length, 300)
    const all = yield* eventually(
      Effect.orElseSucceed(ledgerOf(caller.keyId), () => []),
      (days) => days[0]?.requests === 300
    )
    assert.deepInclude(all[0], { requests: 300, tokensIn: 600, tokensOut: 300 })
    assert.deepStrictEqual(yield* auditSumsOf(caller.keyId), all)
  }
)

test("when the gateway ends, then rows that wait are written before", function* () {
  const scope = yield* Scope.make()
  const audit = yield* Scope.provide(another(), scope)
  const intent = intentOf()
  yield* audit.open(queuedFor(intent))
  const unlock = yield* Scope.make()
  yield* Scope.provide(lock("audit_log"), unlock)
  yield* Effect.exit(Effect.suspend(() => audit.close(endOf(intent, usageOf(4, 2)))))
  const ending = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
  refusedInTime(yield* timed(audit.open(queuedFor(intentOf()))), 700)
  yield* Effect.sleep("300 millis")
  assert.isUndefined(ending.pollUnsafe(), "it waits for the row")
  yield* Scope.close(unlock, Exit.void)
  yield* Fiber.join(ending)
  assert.deepInclude(yield* storedRow(intent.arrival.requestId), { status: 200, tokens_in: 4 })
})
