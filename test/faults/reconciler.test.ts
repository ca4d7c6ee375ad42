/** Requests of processes that died are ended by others, and nobody is taken for dead who lives. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { Audit } from "../../src/audit/Audit.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerCounterReconciler } from "../../src/ledger/CounterReconciler.ts"
import { layerCrashRecovery } from "../../src/ledger/CrashRecovery.ts"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"
import { Meter, Reserved } from "../../src/gates/meter/Meter.ts"
import { layerMemory as layerMemoryMeter } from "../../src/gates/meter/memory/layer.ts"
import { layerLiveAudit } from "../contract/auditWorld.ts"
import { hasIntent, ledgerOf, storedRow } from "../support/auditDatabase.ts"
import { another, patience } from "../support/anotherAudit.ts"
import { eventually } from "../support/Gateway.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { layerPrivatePostgres, TestCluster, TestPostgres } from "../support/TestPostgres.ts"
import { queuedFor } from "../support/permits.ts"

const leaseOf = (requestId: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql<{ readonly left: number; readonly tokens_out: number }>`
      SELECT extract(epoch FROM lease_until - now())::float8 AS left, tokens_out::float8 FROM intents
      WHERE request_id = ${requestId}::text::uuid`
  ).pipe(Effect.map((rows) => rows[0]))

it.live(
  "when a process dies, then another settles its request at its last note, in log, ledger and counters",
  () =>
    Effect.gen(function* () {
      const meter = yield* Meter
      const scope = yield* Scope.make()
      const dying = yield* Scope.provide(another({ leaseS: 1, drainMs: 0 }), scope)
      const alive = yield* another({ leaseS: 1 })
      const caller = callerOf()
      const claims = {
        account: { group: caller.tenantId, key: caller.keyId },
        limits: caller.limits,
        budgets: { total: 1000 },
        user: {
          id: "00000000-0000-4000-8000-00000000ada0",
          limits: caller.limits,
          budgets: { total: 800 }
        }
      }
      for (const owner of [claims.account, { ...claims.account, user: claims.user.id }])
        yield* meter.load(owner, [{ counter: "total", tokens: 0 }])
      const [dead, living] = [intentOf({ caller }), intentOf({ caller })]
      const verdict = yield* meter.reserve(claims, { id: dead.arrival.requestId, tokens: 500, slot: true })
      assert.instanceOf(verdict, Reserved)
      const reservation = verdict instanceof Reserved ? verdict.reservation : dead.reservation
      yield* dying.open(queuedFor({ ...dead, reservation }))
      yield* alive.open(queuedFor(living))
      yield* dying.progress(dead.arrival.requestId, { tokensIn: 5, tokensOut: 40, source: "counted" })
      const beaten = yield* eventually(leaseOf(dead.arrival.requestId), (lease) => lease?.tokens_out === 40)
      assert.strictEqual(beaten?.tokens_out, 40, "the heartbeat tells what was used")
      yield* Scope.close(scope, Exit.void)

      const row = yield* eventually(storedRow(dead.arrival.requestId), Boolean)
      assert.deepInclude(row, { status: 500, error_type: "aborted", tokens_in: 5, tokens_out: 40 })
      assert.isFalse(yield* hasIntent(dead.arrival.requestId))
      assert.deepInclude((yield* ledgerOf(caller.keyId))[0], { requests: 1, tokensIn: 5, tokensOut: 40 })
      const left = Effect.map(meter.peek(claims), (seen) =>
        "budgets" in seen ? [seen.budgets.total?.remaining, seen.userBudgets?.total?.remaining] : []
      )
      assert.deepStrictEqual(yield* eventually(left, ([tokens]) => tokens === 955), [955, 755])
      const { lapsed, open } = yield* meter.snapshot({ ...claims.account, user: claims.user.id }, 0)
      assert.deepStrictEqual([lapsed, open], [[], 0])
      const sql = yield* SqlClient.SqlClient
      const ofUser = yield* sql`SELECT tokens_in::int, tokens_out::int FROM user_ledger
        WHERE user_account = ${claims.user.id}::text::uuid`
      assert.deepStrictEqual(ofUser, [{ tokens_in: 5, tokens_out: 40 }])
      assert.isTrue(yield* hasIntent(living.arrival.requestId), "its neighbour lives and is let be")
      yield* alive.close(endOf(living, usageOf(1, 1)))
      assert.deepInclude(yield* storedRow(living.arrival.requestId), { status: 200 })
    }).pipe(
      Effect.scoped,
      Effect.provide(
        layerCrashRecovery({ leaseS: 1, everyS: 0.1 }).pipe(
          Layer.provide(layerCounterReconciler({ soonEveryS: 0.1 })),
          Layer.provide(Metrics.layer),
          Layer.provideMerge(layerMemoryMeter({ leaseS: 1 })),
          Layer.provideMerge(TestPostgres)
        )
      )
    )
)

it.live("when an outage is longer than a lease, then living requests are not taken for dead", () =>
  Effect.gen(function* () {
    const [audit, cluster] = [yield* Audit, yield* TestCluster]
    const intent = intentOf()
    yield* audit.open(queuedFor(intent))
    yield* cluster.stop
    yield* Effect.sleep("4 seconds")
    yield* cluster.start
    const lease = yield* eventually(
      Effect.orElseSucceed(leaseOf(intent.arrival.requestId), () => undefined),
      (lease) => (lease?.left ?? 0) > 0
    )
    assert.isAbove(lease?.left ?? -1, 0, "renewed, not closed")
    // Long enough for the reconciler to have looked again and again.
    yield* Effect.sleep("2 seconds")
    yield* audit.close(endOf(intent, usageOf(9, 9)))
    assert.deepInclude(yield* storedRow(intent.arrival.requestId), { status: 200, tokens_in: 9 })
  }).pipe(
    Effect.provide(
      Layer.merge(
        layerLiveAudit({ ...patience, leaseS: 3, closeTimeoutMs: 5000 }),
        layerCrashRecovery({ leaseS: 3, everyS: 0.1 })
      ).pipe(
        Layer.provide([Reconciler.layerNone, Metrics.layer]),
        Layer.provideMerge(layerMemoryMeter({ leaseS: 30 })),
        Layer.provideMerge(layerPrivatePostgres())
      )
    )
  )
)

it.live("when an intent cannot be closed, then it delays no other, and it is seen", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [good, bad] = [intentOf(), intentOf()]
    yield* Effect.scoped(
      Effect.gen(function* () {
        const audit = yield* another({ leaseS: 1, drainMs: 0 })
        yield* audit.open(queuedFor(bad))
        yield* audit.open(queuedFor(good))
      })
    )
    // A row the log does not take, whatever is tried.
    yield* sql`ALTER TABLE intents DROP CONSTRAINT intents_tokens_out_check`
    yield* sql`UPDATE intents SET tokens_out = -1 WHERE request_id = ${bad.arrival.requestId}::text::uuid`
    const lines: Array<string> = []
    const ear = Logger.layer([
      Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
    ])
    const built = yield* Layer.build(
      layerCrashRecovery({ leaseS: 1, everyS: 0.1 }).pipe(
        Layer.provide(Reconciler.layerNone),
        Layer.provideMerge(Layer.fresh(Metrics.layer)),
        Layer.provideMerge(ear)
      )
    )
    const row = yield* eventually(storedRow(good.arrival.requestId), Boolean)
    assert.deepInclude(row, { status: 500, error_type: "aborted" })
    assert.isTrue(yield* hasIntent(bad.arrival.requestId))
    // It is logged once with its id, and counted for as long as it is there.
    const metrics = Effect.suspend(() => Context.get(built, Metrics.Metrics).exposition)
    const failures = (text: string) => Number(/failures_total\{task="crash_recovery"\} (\d+)/.exec(text)?.[1])
    const shown = yield* eventually(
      metrics,
      (text) => failures(text) > 1 && text.includes("tollgate_intents_stuck 1\n")
    )
    assert.include(shown, "tollgate_intents_stuck 1\n")
    assert.isAbove(failures(shown), 1)
    const named = (id: string) =>
      lines.filter((line) => line.includes("cannot be closed") && line.includes(id))
    assert.lengthOf(named(bad.arrival.requestId), 1)
    assert.lengthOf(named(good.arrival.requestId), 0)
    yield* sql`DELETE FROM intents`
    assert.include(
      yield* eventually(metrics, (text) => text.includes("tollgate_intents_stuck 0\n")),
      "tollgate_intents_stuck 0\n"
    )
  }).pipe(Effect.scoped, Effect.provide(TestPostgres))
)
