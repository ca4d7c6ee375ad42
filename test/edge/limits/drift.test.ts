/** Counters that have drifted from the ledger come back to it, and only while nothing is under way. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import {
  type CounterReconcilerOptions,
  layerCounterReconciler
} from "../../../src/ledger/CounterReconciler.ts"
import { settleExpired } from "../../../src/ledger/expiredHolds.ts"
import { Reconciler } from "../../../src/gates/limits/Reconciler.ts"
import { Metrics, layer as layerMetrics } from "../../../src/observability/Metrics.ts"
import { layerMemory } from "../../../src/gates/meter/memory/layer.ts"
import { Meter, Reserved } from "../../../src/gates/meter/Meter.ts"
import { accountsOf, type Claims } from "../../../src/domain/Reservation.ts"
import { completionRow } from "../../../src/audit/rows.ts"
import { writeRows } from "../../../src/audit/statements.ts"
import { callerOf, endOf, intentOf, usageOf } from "../../support/records.ts"
import { eventually } from "../../support/Gateway.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { inWorld, testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"
import { utc } from "../../../src/domain/Calendar.ts"

const leaseS = 1

/** Counters of their own, beside the ledger of the test, and who compares them. */
const countersOf = (options: CounterReconcilerOptions, lease = 30) =>
  layerCounterReconciler(options).pipe(
    Layer.provideMerge(Layer.fresh(layerMemory({ leaseS: lease }))),
    Layer.provideMerge(Layer.fresh(layerMetrics))
  )

const often = { everyS: 0.25 }
/** As good as never, but for those that are compared first. */
const seldom = { everyS: 600, soonEveryS: 0.25 }

const group = "00000000-0000-4000-8000-000000000001"
let serial = 0

/** A key with a budget of 1000 whose ledger says 100; its counter says `counted`. */
const keyAt = Effect.fnUntraced(function* (counted: number) {
  const key = `00000000-0000-4000-8000-0000000001${String(++serial).padStart(2, "0")}`
  const claims: Claims = {
    account: { group, key },
    limits: { rpm: 1000, tpm: 100_000, concurrent: 10 },
    budgets: { total: 1000 }
  }
  yield* sql`INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    VALUES (${key}::text::uuid, ${group}::text::uuid, '2026-01-01', 1, 60, 40)`
  yield* (yield* Meter).load(claims.account, [{ counter: "total", tokens: counted }])
  return claims
})

/** As the Limiter does. */
const reserve = Effect.fnUntraced(function* (claims: Claims, id: string, tokens = 10) {
  const verdict = yield* (yield* Meter).reserve(claims, { id, tokens, slot: true })
  ;(yield* Reconciler).compare(claims)
  return verdict
})

const take = Effect.fnUntraced(function* (claims: Claims, id: string) {
  const verdict = yield* reserve(claims, id)
  return verdict instanceof Reserved ? verdict.reservation : yield* Effect.die(verdict)
})

/** An open request, as its gateway wrote it. */
const insertIntent = Effect.fnUntraced(function* (id: string, { account }: Claims, held: number) {
  yield* sql`INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed,
    client_ip, arrived_at, admitted_at, held, tokens_in, lease_until)
    VALUES (${id}::text::uuid, ${account.group}::text::uuid, ${account.key}::text::uuid, 'tg_000000000', 'm', '/', 'POST',
    false, '', now(), now(), ${held}, 5, now() + interval '1 minute')`
})

const spent = (claims: Claims) =>
  Effect.gen(function* () {
    const account = accountsOf(claims).at(-1)?.account ?? claims.account
    const survey = yield* (yield* Meter).snapshot(account, Date.now())
    return survey.totals.total
  })

const drift = Effect.gen(function* () {
  const text = yield* (yield* Metrics).exposition
  return Number(/^tollgate_counter_drift_tokens (\d+)$/m.exec(text)?.[1])
})

inWorld(Layer.provideMerge(countersOf(often), TestPostgres))("counters and ledger", (test, it) => {
  for (const counted of [350, 0]) {
    test(`when a counter is at ${counted}, then it comes back to the ledger's 100 and the drift is logged`, function* () {
      const claims = yield* keyAt(counted)
      yield* (yield* Meter).settle(yield* take(claims, `touch-${counted}`), 0)
      yield* eventually(drift, (tokens) => tokens === Math.abs(counted - 100))
      assert.strictEqual(yield* eventually(spent(claims), (tokens) => tokens === 100), 100)
      assert.strictEqual(yield* eventually(drift, (tokens) => tokens === 0), 0)
    })
  }

  test("when the request of a dead process was ended, then the counter of its tenant comes back too, without another request", function* () {
    const meter = yield* Meter
    const { account } = yield* keyAt(100)
    const tenant = "00000000-0000-4000-8000-0000000000fe"
    yield* sql`UPDATE ledger SET tenant_id = ${tenant}::text::uuid WHERE key_id = ${account.key}::text::uuid`
    yield* meter.load({ group: tenant }, [{ counter: "total", tokens: 130 }])
    yield* (yield* Reconciler).compareSoon({ ...account, group: tenant })
    const counted = Effect.map(
      Effect.suspend(() => meter.snapshot({ group: tenant, accounts: [] }, Date.now())),
      ({ totals }) => totals.total
    )
    assert.strictEqual(yield* eventually(counted, (tokens) => tokens === 100), 100)
  })

  test("when the counter of an end user has drifted, then it comes back to the ledger's too", function* () {
    const meter = yield* Meter
    const claims = yield* keyAt(100)
    const user = {
      id: "00000000-0000-4000-8000-000000000bbb",
      limits: claims.limits,
      budgets: { total: 900 }
    }
    yield* sql`INSERT INTO user_ledger (user_account, key_id, day, requests, tokens_in, tokens_out)
          VALUES (${user.id}::text::uuid, ${claims.account.key}::text::uuid, '2026-01-01', 1, 10, 20)`
    yield* meter.load({ ...claims.account, user: user.id }, [{ counter: "total", tokens: 350 }])
    yield* meter.settle(yield* take({ ...claims, user }, "of a user"), 0)
    const counted = spent({ ...claims, user })
    assert.strictEqual(yield* eventually(counted, (tokens) => tokens === 30), 30)
  })

  test("when the counter for a model has drifted, then it comes back to what the keys of the account used of it today", function* () {
    const meter = yield* Meter
    const claims = yield* keyAt(100)
    const model = { name: "m:1", limits: claims.limits, budgets: { day: 900 } }
    const book = (model: string, day: string, tokens: number) => sql`
      INSERT INTO usage_daily (key_id, tenant_id, day, model, requests, tokens_in, tokens_out, errors)
      VALUES (${claims.account.key}::text::uuid, ${group}::text::uuid, ${day}::text::date, ${model}, 1, ${tokens}, 0, 0)`
    const { date } = utc.dayAt(Date.now())
    yield* book("m:1", date, 10)
    yield* book("m:1:latest", date, 20)
    yield* book("m:1", "2026-01-01", 400)
    yield* book("m:10", date, 4000)
    yield* meter.load({ ...claims.account, model: model.name }, [{ counter: date, tokens: 350 }])
    yield* meter.settle(yield* take({ ...claims, model }, "for a model"), 0)
    const counted = Effect.map(
      meter.snapshot({ ...claims.account, model: model.name }, Date.now()),
      ({ totals }) => totals.day
    )
    assert.strictEqual(yield* eventually(counted, (tokens) => tokens === 30), 30)
  })

  test("when counters may differ from the ledger, then they are corrected soon", function* () {
    const claims = yield* keyAt(100)
    const services = yield* Layer.build(countersOf(seldom))
    const [meter, reconciler] = [Context.get(services, Meter), Context.get(services, Reconciler)]
    yield* meter.load(claims.account, [{ counter: "total", tokens: 350 }])
    const total = Effect.map(meter.snapshot(claims.account, 0), ({ totals }) => totals.total)
    yield* Effect.sleep("600 millis")
    assert.strictEqual(yield* total, 350)
    yield* reconciler.compareSoon(claims.account)
    assert.strictEqual(yield* eventually(total, (tokens) => tokens === 100), 100)
  })

  test("when a request is under way, then neither counter nor ledger is touched", function* () {
    const meter = yield* Meter
    const claims = yield* keyAt(350)
    const running = yield* take(claims, "running")
    yield* Effect.sleep("800 millis")
    assert.strictEqual(yield* spent(claims), 360)
    const id = "00000000-0000-4000-8000-00000000aaaa"
    yield* insertIntent(id, claims, 10)
    yield* meter.settle(running, 0)
    yield* Effect.sleep("800 millis")
    assert.strictEqual(yield* spent(claims), 350)
    yield* sql`DELETE FROM intents WHERE request_id = ${id}::text::uuid`
    assert.strictEqual(yield* eventually(spent(claims), (tokens) => tokens === 100), 100)
  })

  test("when a key has another tenant while its request runs, then the counter of the tenant that asked keeps its hold", function* () {
    const meter = yield* Meter
    const tenant = "00000000-0000-4000-8000-000000000002"
    const id = "00000000-0000-4000-8000-00000000bbbb"
    const { account, limits } = yield* keyAt(0)
    const claims = {
      account: { ...account, group: tenant },
      limits,
      budgets: {},
      tenantBudgets: { total: 1000 }
    }
    yield* meter.load({ group: tenant }, [{ counter: "total", tokens: 0 }])
    const running = yield* take(claims, id)
    yield* insertIntent(id, claims, 10)
    const counted = Effect.map(
      meter.snapshot({ group: tenant, accounts: [] }, Date.now()),
      ({ totals }) => totals.total
    )
    // No key of the tenant is left.
    yield* Effect.sleep("800 millis")
    assert.strictEqual(yield* counted, 10)
    yield* meter.settle(running, 10)
    yield* sql`DELETE FROM intents WHERE request_id = ${id}::text::uuid`
    assert.strictEqual(yield* eventually(counted, (tokens) => tokens === 0), 0)
  })

  testWith(it.effect, countersOf(often, leaseS))(
    "when a request lost its lease, then its hold is ended as the ledger says, and not before the request can be dead",
    function* () {
      const claims = yield* keyAt(100)
      const { key } = claims.account
      const meter = yield* Meter
      yield* meter.load(claims.account, [{ counter: "total", tokens: 100 }])
      const [running, booked, killed] = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()]
      for (const id of [running, booked]) {
        yield* reserve(claims, id, 100)
        yield* insertIntent(id, claims, 100)
      }
      const arrival = {
        requestId: booked,
        arrivedAt: Date.now(),
        method: "POST",
        endpoint: "/",
        clientIp: ""
      }
      const end = endOf({ ...intentOf({ caller: callerOf(key, group) }), arrival }, usageOf(7, 120))
      // It is booked at more than it held, and nobody tells the counters.
      yield* writeRows(yield* PgClient.PgClient)([completionRow(end, utc)])
      // All that remains, for somebody who is no more.
      yield* reserve(claims, killed, 10_000)
      const state = Effect.map(meter.snapshot(claims.account, Date.now()), ({ lapsed, open, totals }) => ({
        open,
        lapsed,
        total: totals.total
      }))
      assert.deepStrictEqual(yield* state, { open: 3, lapsed: [], total: 1000 })
      const asking = yield* reserve(claims, crypto.randomUUID())
      assert.strictEqual(asking._tag, "Refused")
      const one = { open: 0, lapsed: [running], total: 327 }
      assert.deepStrictEqual(yield* eventually(state, ({ total }) => total === 327), one)
      yield* Effect.sleep("800 millis")
      assert.deepStrictEqual(yield* state, one)
      // The Reconciler's part.
      yield* sql`DELETE FROM intents WHERE request_id = ${running}::text::uuid`
      const rest = { open: 0, lapsed: [], total: 227 }
      assert.deepStrictEqual(yield* eventually(state, ({ total }) => total === 227), rest)
    }
  )

  testWith(it.effect, countersOf(seldom, leaseS))(
    "when the hold of a dead request is ended, then its model has what the ledger says at once",
    function* () {
      const [meter, pg] = [yield* Meter, yield* PgClient.PgClient]
      const { account, limits } = yield* keyAt(100)
      const model = { name: "m", limits, budgets: { day: 1000 } }
      const { date } = utc.dayAt(Date.now())
      yield* meter.load({ ...account, model: "m" }, [{ counter: date, tokens: 0 }])
      const id = crypto.randomUUID()
      yield* meter.reserve({ account, limits, budgets: {}, model }, { id, tokens: 300, slot: true })
      const arrival = { requestId: id, arrivedAt: Date.now(), method: "POST", endpoint: "/", clientIp: "" }
      const end = endOf({ ...intentOf({ caller: callerOf(account.key, group) }), arrival }, usageOf(7, 120))
      yield* writeRows(pg)([completionRow(end, utc)])
      const lapsed = Effect.map(meter.snapshot(account, Date.now()), (seen) => seen.lapsed)
      assert.deepStrictEqual(yield* eventually(lapsed, ({ length }) => length > 0), [id])
      yield* settleExpired(pg, meter, account, [id], Date.now())
      const { open, totals, ...ofModel } = yield* meter.snapshot({ ...account, model: "m" }, Date.now())
      assert.deepStrictEqual([ofModel.lapsed, open, totals], [[], 0, { day: 127 }])
    }
  )

  testWith(it.effect, countersOf(often, leaseS))(
    "when a killed process held a slot, then whoever is refused because of it finds it, also without a budget",
    function* () {
      const meter = yield* Meter
      const { account, limits } = yield* keyAt(100)
      const claims = { account, limits, budgets: {} }
      // By a process that tells nobody any more.
      yield* meter.reserve(claims, { id: crypto.randomUUID(), tokens: limits.tpm, slot: true })
      assert.strictEqual((yield* reserve(claims, "refused"))._tag, "Refused")
      const survey = meter.snapshot(account, Date.now())
      const { lapsed, open } = yield* eventually(survey, (seen) => seen.open + seen.lapsed.length === 0)
      assert.deepStrictEqual([open, lapsed], [0, []])
      assert.strictEqual((yield* reserve(claims, "admitted"))._tag, "Reserved")
    }
  )
})
