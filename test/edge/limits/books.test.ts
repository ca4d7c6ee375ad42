/** `tollgate reconcile` beside a gateway whose clients do not stop. */
import { assert } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { Books, Counters, layerPostgres } from "../../../src/admin/books/Books.ts"
import { Registry } from "../../../src/admin/Registry.ts"
import { Meter } from "../../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../../src/infra/Redis.ts"
import { longestLeaseS } from "../../../src/Settings.ts"
import { eventually, layerGateway, newKey } from "../../support/Gateway.ts"
import { TestRedis } from "../../support/TestRedis.ts"
import { startTraffic } from "../../support/Traffic.ts"
import { expectRepairs } from "../../support/watch.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const layerCounters = Layer.unwrap(
  Effect.map(TestRedis, ({ url }) =>
    Layer.effect(Counters, Meter).pipe(
      Layer.provide(layerRedisMeter({ leaseS: longestLeaseS })),
      Layer.provide(layerRedis({ url: Redacted.make(url), commandTimeoutMs: 5000 }))
    )
  )
)

const World = layerPostgres({ leaseS: 30, looks: { everyMs: 5 } }).pipe(
  Layer.provide(layerCounters),
  Layer.provideMerge(layerGateway())
)

inWorld(World)("the books of a gateway in use", (test) => {
  test("when requests run all the time, then no look at the books finds a difference, and at rest all are compared", function* () {
    const [books, registry] = [yield* Books, yield* Registry]
    const keys = yield* Effect.forEach([1, 2, 3, 4], () => newKey())
    for (const { prefix, tenant } of keys) {
      yield* registry.changeKey(prefix, { budgetDaily: 10_000_000, budgetTotal: 20_000_000 })
      yield* registry.changeTenant(tenant, { budgetMonthly: 10_000_000 })
    }
    // Those without a name, of two keys.
    for (const { prefix } of keys.slice(0, 2))
      yield* registry.changeKey(prefix, { endUserHeader: "X-User", eachUserTotal: 10_000_000 })
    const traffic = yield* startTraffic(
      keys.map(({ secret }) => secret),
      6
    )
    yield* eventually(
      Effect.sync(() => traffic.outcomes.length),
      (answered) => answered > 20
    )
    let most = 0
    for (let n = 0; n < 12; n += 1) {
      const { differences, running } = yield* books.compare({})
      assert.deepStrictEqual(differences, [])
      most = Math.max(most, running)
    }
    yield* traffic.stop
    assert.isAbove(most, 0, "requests were open while it compared")
    const proof = yield* eventually(books.compare({}), ({ counters }) => counters?.busy === 0)
    assert.deepInclude(proof, { differences: [], running: 0, counters: { compared: 10, busy: 0 } })
    assert.deepStrictEqual(proof.compared.audit, proof.compared.ledger)
    const answered = traffic.outcomes.filter(({ status }) => status === 200).length
    const [row] = yield* sql<{ readonly n: number }>`SELECT sum(requests)::int AS n FROM ledger`
    assert.isAtLeast(row?.n ?? 0, answered)
  })

  test("when the ledger is repaired while its requests end, then no token is lost or booked twice", function* () {
    const books = yield* Books
    // The gateway may set the counters before the command does.
    yield* expectRepairs
    const { prefix, secret } = yield* newKey()
    const traffic = yield* startTraffic([secret], 6)
    for (const change of [1000, -20, 7]) {
      const before = traffic.outcomes.length
      yield* eventually(
        Effect.sync(() => traffic.outcomes.length),
        (answered) => answered > before + 10
      )
      yield* sql`UPDATE ledger SET tokens_out = tokens_out + ${change}::int
          WHERE key_id = (SELECT id FROM api_keys WHERE prefix = ${prefix})`
      const { after, before: found, mended } = yield* books.repair({})
      assert.deepInclude(found.differences[0], { kind: "ledger", key: prefix })
      assert.deepInclude(mended, { ledger: 1, corrections: 0 })
      assert.deepStrictEqual(after.differences, [])
    }
    yield* traffic.stop
    const proof = yield* eventually(books.compare({}), ({ counters }) => counters?.busy === 0)
    assert.deepInclude(proof, { differences: [], running: 0 })
  })
})
