import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { allReportedMs, Full, Granted, type QueueStore, Waiting } from "../../src/gates/queue/QueueStore.ts"
import { makeRedisQueueStore } from "../../src/gates/queue/redis/RedisQueueStore.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { layerReadyRedis } from "../support/TestMeter.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { maxWaitMs } from "../support/wait.ts"
import { batchEveryMs, graceMs, grantedIn, leaseS, Replicas, suite, ticket } from "./QueueStore.ts"
import { properties } from "./QueueStoreProperty.ts"
import { testWith } from "../support/testWith.ts"

const twin = () =>
  Layer.effect(
    Replicas,
    Effect.map(Redis, (redis) => ({
      of: () =>
        Effect.provideService(
          makeRedisQueueStore({ leaseS, graceMs, batchEveryMs }, Clock.currentTimeMillis),
          Redis,
          redis
        ),
      clear: Effect.orDie(Effect.asVoid(redis.send("FLUSHDB", []))),
      // In real time: the clock of the test stands still.
      delivered: (holds) =>
        Effect.promise(async () => {
          const until = performance.now() + maxWaitMs
          while (!holds() && performance.now() < until) await new Promise(setImmediate)
        })
    }))
  ).pipe(Layer.provide(layerReadyRedis), Layer.provide(Layer.fresh(layerTestRedis)))

suite("QueueStore in Redis", twin)
properties("QueueStore in Redis", twin, { runs: 120 })

const test = testWith(it.effect, twin())

describe("a loss", () => {
  test("when all replicas that knew each other have named their requests, then places are given before the time is over", function* () {
    const replicas = yield* Replicas
    const [a, b] = [yield* replicas.of("a"), yield* replicas.of("b")]
    const bounds = { places: 2, depth: 8 }
    for (const store of [a, b]) yield* store.beat([], [], bounds)
    yield* TestClock.adjust(graceMs)
    assert.instanceOf(yield* a.enter(ticket("1"), bounds), Granted)
    // Each reads the state in which the other is.
    for (const store of [a, b]) yield* store.beat([], [], bounds)
    yield* replicas.clear
    assert.deepStrictEqual((yield* a.beat(["1"], [], bounds)).unknown, ["1"])
    yield* a.restore([{ ticket: ticket("1"), order: undefined }], bounds)
    assert.instanceOf(yield* b.enter(ticket("2"), bounds), Waiting)
    for (const store of [a, b, b])
      yield* store.beat(store === a ? ["1"] : [], store === a ? [] : ["2"], bounds)
    yield* TestClock.adjust(allReportedMs - 1)
    assert.deepStrictEqual(grantedIn(yield* b.beat([], ["2"], bounds)), [])
    yield* TestClock.adjust(1)
    assert.deepStrictEqual(grantedIn(yield* b.beat([], ["2"], bounds)), ["2"])
  })
})

describe("three replicas", () => {
  test("when they ask at once, then no place is given twice and no call is lost", function* () {
    const replicas = yield* Replicas
    const stores = yield* Effect.forEach(["a", "b", "c"], replicas.of)
    const bounds = { places: 2, depth: 1000 }
    for (const store of stores) yield* store.beat([], [], bounds)
    yield* TestClock.adjust(graceMs)
    const running = new Set<string>()
    let most = 0
    const ends: Array<Effect.Effect<unknown, unknown>> = []
    const go = (store: QueueStore["Service"], id: string) => {
      running.add(id)
      most = Math.max(most, running.size)
      ends.push(
        Effect.suspend(() => {
          running.delete(id)
          return store.end(id, 100, bounds)
        })
      )
    }
    for (const store of stores) yield* store.onMessage(({ id }) => Effect.sync(() => go(store, id)))
    const ids = Array.from({ length: 300 }, (_, i) => `r${i}`)
    const answers = yield* Effect.forEach(
      ids,
      (id, i) => {
        const store = stores[i % stores.length]
        if (store === undefined) return Effect.die("no store")
        return Effect.tap(store.enter(ticket(id, { tenant: `t${i % 5}` }), bounds), (answer) =>
          Effect.sync(() => answer instanceof Granted && go(store, id))
        )
      },
      { concurrency: "unbounded" }
    )
    assert.isTrue(answers.every((answer) => !(answer instanceof Full)))
    let ended = 0
    while (ended < ids.length) {
      yield* replicas.delivered(() => ends.length > 0)
      const [next] = ends.splice(0, 1)
      if (next === undefined) return assert.fail(`${ended} ended`)
      yield* next
      ended += 1
    }
    assert.strictEqual(most, bounds.places)
    const [one] = stores
    assert.deepStrictEqual((yield* one?.beat([], [], bounds) ?? Effect.die("no store")).models.length, 1)
  })
})
