/** The whole contract once more, on a real Redis Cluster of three masters. */
import { once } from "node:events"
import { afterAll, assert, beforeAll, it } from "@effect/vitest"
import { Clock, Context, Effect, Exit, Layer, Redacted, Scope } from "effect"
import { Cluster } from "ioredis"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { makeRedis } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis, Redis } from "../../src/infra/Redis.ts"
import { layerRedisCluster } from "../support/TestRedisCluster.ts"
import { TestRedis } from "../support/TestRedis.ts"
import { claimsOf, granted, leaseS, suite, Wipe } from "./Meter.ts"
import { groups } from "./MeterGroups.ts"
import { mostUsers, users } from "./MeterUsers.ts"
import { testWith } from "../support/testWith.ts"

const scope = Scope.makeUnsafe()
let url = ""
beforeAll(async () => {
  const cluster = Layer.buildWithScope(layerRedisCluster, scope)
  url = await Effect.runPromise(Effect.map(cluster, (built) => Context.get(built, TestRedis).url))
})
afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

const masters = Effect.map(Redis, ({ client }) => (client instanceof Cluster ? client.nodes("master") : []))

/** A client of its own for every test, on an empty cluster. */
const client = Layer.effectDiscard(
  Effect.gen(function* () {
    const redis = yield* Redis
    if (redis.client.status !== "ready") yield* Effect.promise(() => once(redis.client, "ready"))
    const nodes = yield* masters
    assert.strictEqual(nodes.length, 3)
    yield* Effect.promise(() => Promise.all(nodes.map((node) => node.flushdb())))
  })
).pipe(
  Layer.provideMerge(Layer.suspend(() => layerRedis({ url: Redacted.make(url), commandTimeoutMs: 2000 })))
)

const wipe = Layer.effect(
  Wipe,
  Effect.map(masters, (nodes) => Effect.promise(() => Promise.all(nodes.map((node) => node.flushdb()))))
)

const twin = () =>
  Layer.merge(
    wipe,
    Layer.effect(
      Meter,
      Effect.flatMap(Redis, (redis) => makeRedis(redis, { leaseS, mostUsers }, Clock.currentTimeMillis))
    )
  ).pipe(Layer.provideMerge(Layer.fresh(client)))

suite("Meter in a Redis Cluster", twin)
groups("Meter in a Redis Cluster", twin)
users("Meter in a Redis Cluster", twin)

const test = testWith(it.live, twin())

test("when groups are stored, then they are spread over all masters, and each stays on one", function* () {
  const meter = yield* Meter
  for (let i = 0; i < 30; i++) {
    const claims = claimsOf({ budgets: { total: 100 } }, { group: `group-${i}`, key: "k" })
    yield* meter.load(claims.account, [{ counter: "total", tokens: 10 }])
    const { reservation } = granted(yield* meter.reserve(claims, { id: `c-${i}`, tokens: 50, slot: true }))
    yield* meter.renew(reservation, 10, 60)
    assert.strictEqual((yield* meter.settle(reservation, 55)).budgets.total?.remaining, 35)
  }
  const sizes = yield* Effect.forEach(yield* masters, (node) => Effect.promise(() => node.dbsize()))
  assert.isTrue(
    sizes.every((size) => size > 0),
    sizes.join()
  )
  assert.strictEqual(
    sizes.reduce((sum, size) => sum + size, 0),
    90
  )
})

test("when requests of many tenants come in one turn, then each tenant has a command of its own", function* () {
  const meter = yield* Meter
  const run = Effect.map(
    Effect.flatMap(masters, (nodes) =>
      Effect.promise(() => Promise.all(nodes.map((node) => node.info("commandstats"))))
    ),
    (texts) =>
      texts.reduce((sum, text) => sum + Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1] ?? 0), 0)
  )
  const reserveAll = (turn: string) =>
    Effect.forEach(
      Array.from({ length: 40 }, (_, i) => i),
      (i) =>
        meter.reserve(claimsOf({}, { group: `tenant-${i % 10}`, key: `k${i}` }), {
          id: `${turn}-${i}`,
          tokens: 5,
          slot: true
        }),
      { concurrency: "unbounded" }
    )
  // Loads the script on each node.
  yield* reserveAll("first")
  const before = yield* run
  for (const verdict of yield* reserveAll("second")) granted(verdict)
  assert.strictEqual((yield* run) - before, 10)
})
