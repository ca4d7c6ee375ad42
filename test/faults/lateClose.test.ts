/** A request whose process was taken for dead, and which ends after all: in the database, the ledger and the counters. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { chargeCorrection, correctAudit } from "../../src/audit/corrections.ts"
import { completionRow } from "../../src/audit/rows.ts"
import { insertIntents, writeRows } from "../../src/audit/statements.ts"
import { Meter, Reserved } from "../../src/gates/meter/Meter.ts"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"
import type { CounterOwner } from "../../src/domain/Reservation.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { auditSumsOf, correctionOf, ledgerOf } from "../support/auditDatabase.ts"
import { intentRowOf } from "../support/permits.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { eventually } from "../support/wait.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { utc } from "../../src/domain/Calendar.ts"

/** Whether a statement waits for a lock. Within a transaction pg_stat_activity would not change, pg_locks does. */
const waitsForLock = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const rows = yield* pg`SELECT 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')`
  return rows.length > 0
})

const abortion = { status: 500, errorType: "aborted" }

inWorld(TestPostgres)("a late end", (test, it) => {
  test("when its amount is another one, then it is corrected; when it is only sent twice, then not", function* () {
    const pg = yield* PgClient.PgClient
    const caller = callerOf()
    const [cut, whole] = [intentOf({ caller }), intentOf({ caller })]
    const [cutId, wholeId] = [cut.arrival.requestId, whole.arrival.requestId]
    yield* insertIntents(pg, 30)([intentRowOf(cut), intentRowOf(whole)])
    const close = writeRows(pg)
    const done = completionRow(endOf(whole, usageOf(1, 2)), utc)
    assert.deepStrictEqual(yield* close([done]), [])
    assert.deepStrictEqual(yield* close([done]), [wholeId], "a row whose answer was lost is sent again")
    const user = "00000000-0000-4000-8000-00000000ada1"
    const aborted = { ...completionRow(endOf(cut, usageOf(5, 10), abortion), utc), user_account: user }
    assert.deepStrictEqual(yield* close([aborted]), [])
    const late = completionRow(endOf(cut, usageOf(7, 30)), utc)
    assert.deepStrictEqual([...(yield* close([late, done]))].toSorted(), [cutId, wholeId].toSorted())
    const [corrected, ...others] = yield* correctAudit(pg)([late, done])
    assert.deepStrictEqual(others, [])
    assert.deepInclude(corrected, { id: cutId, tokens: 22, user_account: user })
    const ofUser = yield* pg`SELECT requests::int, tokens_in::int, tokens_out::int FROM user_ledger
          WHERE user_account = ${user}::text::uuid`
    assert.deepStrictEqual(ofUser, [{ requests: 1, tokens_in: 7, tokens_out: 30 }])
    assert.deepStrictEqual(yield* correctAudit(pg)([late, done]), [])
    const sums = yield* auditSumsOf(caller.keyId)
    assert.deepInclude(sums[0], { requests: 2, tokensIn: 8, tokensOut: 32 })
    assert.deepStrictEqual(yield* ledgerOf(caller.keyId), sums)
  })

  test("when the other replica is closing it at the same moment, then nothing is lost", function* () {
    const pg = yield* PgClient.PgClient
    const caller = callerOf()
    const cut = intentOf({ caller })
    yield* insertIntents(pg, 30)([intentRowOf(cut)])
    const late = completionRow(endOf(cut, usageOf(7, 30)), utc)
    const [begun, aborted] = [
      yield* Deferred.make<void>(),
      completionRow(endOf(cut, usageOf(5, 10), abortion), utc)
    ]
    const other = pg.withTransaction(
      Effect.gen(function* () {
        yield* writeRows(pg)([aborted])
        yield* Deferred.succeed(begun, undefined)
        // Until the other one waits for the row.
        assert.isTrue(yield* eventually(waitsForLock, Boolean))
      })
    )
    const closing = yield* Effect.forkChild(other)
    yield* Deferred.await(begun)
    const known = yield* writeRows(pg)([late])
    assert.deepStrictEqual(known, [cut.arrival.requestId])
    yield* correctAudit(pg)([late])
    yield* Fiber.join(closing)
    assert.deepInclude(yield* correctionOf(cut.arrival.requestId), { tokens_in: 2, tokens_out: 20 })
    assert.deepStrictEqual(yield* ledgerOf(caller.keyId), yield* auditSumsOf(caller.keyId))
  })

  testWith(it.effect, layerMeter({ leaseS: 30 }))(
    "when it is charged to the counters, then once, and they say what the ledger says",
    function* () {
      const meter = yield* Meter
      const caller = callerOf()
      const account = { group: caller.tenantId, key: caller.keyId }
      const claims = { account, limits: caller.limits, budgets: { total: 1000 } }
      yield* meter.load(account, [{ counter: "total", tokens: 0 }])
      const { requestId } = intentOf({ caller }).arrival
      const verdict = yield* meter.reserve(claims, { id: requestId, tokens: 100, slot: true })
      assert.instanceOf(verdict, Reserved)
      if (!(verdict instanceof Reserved)) return
      const { reservation } = verdict
      yield* meter.settle(reservation, 33)
      const left = Effect.map(meter.snapshot(account, reservation.admittedAt), ({ totals }) => totals.total)
      yield* meter.settle(reservation, 191)
      assert.strictEqual(yield* left, 33, "the request is over for the counters")
      const told: Array<CounterOwner> = []
      const reconciler = Reconciler.of({
        compare: () => Effect.void,
        compareSoon: (owner) => Effect.sync(() => void told.push(owner))
      })
      const correction = {
        id: requestId,
        tenant_id: caller.tenantId,
        key_id: caller.keyId,
        account: caller.accountId,
        user_account: null,
        model: null,
        admitted_at: reservation.admittedAt,
        tokens: 158,
        was_aborted: true
      }
      yield* chargeCorrection(meter, reconciler, correction)
      yield* chargeCorrection(meter, reconciler, correction)
      assert.strictEqual(yield* left, 191)
      // What was booked too much is left to the comparison with the ledger.
      yield* chargeCorrection(meter, reconciler, { ...correction, id: "another", tokens: -50 })
      assert.strictEqual(yield* left, 191)
      assert.deepStrictEqual(told, [account, account, account])
    }
  )
})
