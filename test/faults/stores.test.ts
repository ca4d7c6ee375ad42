/** The gateway while its stores are away: stopped, frozen, or never there. It refuses in time and comes back by itself. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { call, eventually, Fake, hello, layerFake, layerGatewayOn, newKey } from "../support/Gateway.ts"
import { layerPrivatePostgres, TestCluster } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedisServer } from "../support/TestRedis.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { makeStopwatch, atMost } from "../support/wait.ts"

const layerStores = Layer.mergeAll(Layer.fresh(layerFake), layerPrivatePostgres(), layerPrivateRedis())

const chat = Effect.fnUntraced(function* (secret: string) {
  const started = makeStopwatch()
  const answer = yield* call("/api/chat", { secret, body: hello({ stream: false }) })
  return { ...answer, ms: started() }
})

/** A key that was used a moment ago, so that all that can be cached is. */
const warmKey = Effect.gen(function* () {
  const key = yield* newKey()
  for (let i = 0; i < 3; i += 1) {
    const answer = yield* eventually(chat(key.secret), ({ status }) => status === 200)
    assert.strictEqual(answer.status, 200, answer.text)
  }
  return key
})

interface Outage<R> {
  readonly begin: Effect.Effect<void, unknown, R>
  readonly end: Effect.Effect<void, unknown, R>
  /** ms from its beginning to the first refusal, and the longest a refusal may take */
  readonly refusedWithinMs: number
  readonly dependency: "database" | "cache"
}

/** What `tollgate_ready` says of a dependency; undefined when it says nothing. */
const readyOf = (dependency: string) =>
  Effect.map(call("/metrics"), ({ text }) => {
    const value = new RegExp(`^tollgate_ready\\{dependency="${dependency}"\\} (\\d)$`, "m").exec(text)?.[1]
    return value === undefined ? undefined : Number(value)
  })

/** Refused in time, every time, without the backend being asked; served again within three seconds of its end. */
const survives = Effect.fnUntraced(function* <R>(outage: Outage<R>) {
  const [fake, { secret }] = [yield* Fake, yield* warmKey]
  const during = Effect.gen(function* () {
    const away = makeStopwatch()
    const first = yield* eventually(
      chat(secret),
      ({ status }) => status !== 200,
      atMost(outage.refusedWithinMs)
    )
    assert.isBelow(away(), atMost(outage.refusedWithinMs))
    assert.strictEqual(first.status, 503)
    assert.deepInclude(JSON.parse(first.text).error, {
      type: "service_unavailable",
      message: "service temporarily unavailable"
    })
    const asked = fake.requests.length
    for (const answer of yield* Effect.all([chat(secret), chat(secret)], { concurrency: 2 })) {
      assert.strictEqual(answer.status, 503)
      assert.isBelow(answer.ms, atMost(outage.refusedWithinMs))
    }
    assert.strictEqual(fake.requests.length, asked)
    assert.strictEqual((yield* call("/healthz")).status, 200)
    // Readiness may be a second old, and has a second to find out.
    const ready = yield* eventually(call("/readyz"), ({ status }) => status === 503)
    assert.strictEqual(ready.status, 503)
    assert.strictEqual(yield* readyOf(outage.dependency), 0)
  })
  yield* Effect.acquireUseRelease(
    outage.begin,
    () => during,
    () => Effect.orDie(outage.end)
  )
  const back = yield* eventually(chat(secret), ({ status }) => status === 200)
  assert.strictEqual(back.status, 200, back.text)
  const ready = yield* eventually(call("/readyz"), ({ status }) => status === 200)
  assert.strictEqual(ready.status, 200)
  assert.strictEqual(yield* readyOf(outage.dependency), 1)
})

type Stores = TestCluster | TestRedisServer
const outages: ReadonlyArray<Outage<Stores> & { readonly name: string }> = [
  {
    name: "Postgres is stopped",
    begin: Effect.flatMap(TestCluster, ({ stop }) => stop),
    end: Effect.flatMap(TestCluster, ({ start }) => start),
    refusedWithinMs: 2500,
    dependency: "database"
  },
  {
    name: "Postgres is frozen",
    begin: Effect.flatMap(TestCluster, ({ pause }) => pause),
    end: Effect.flatMap(TestCluster, ({ resume }) => resume),
    refusedWithinMs: 2500,
    dependency: "database"
  },
  {
    name: "Redis is stopped",
    begin: Effect.flatMap(TestRedisServer, ({ stop }) => stop),
    end: Effect.flatMap(TestRedisServer, ({ start }) => start),
    refusedWithinMs: 600,
    dependency: "cache"
  },
  {
    name: "Redis is frozen",
    begin: Effect.flatMap(TestRedisServer, ({ pause }) => pause),
    end: Effect.flatMap(TestRedisServer, ({ resume }) => resume),
    refusedWithinMs: 1500,
    dependency: "cache"
  }
]

inWorld(layerGatewayOn().pipe(Layer.provideMerge(layerStores)))("a gateway with warm caches", (test) => {
  for (const outage of outages)
    test(`when ${outage.name}, then it refuses in time`, function* () {
      yield* survives(outage)
    })
})

const test = testWith(it.live, layerStores)

test("when a gateway starts while both stores are down, then it runs, is not ready, refuses, and recovers without a restart", function* () {
  const [cluster, server] = [yield* TestCluster, yield* TestRedisServer]
  yield* Effect.all([cluster.stop, server.stop], { concurrency: 2 })
  yield* Effect.gen(function* () {
    assert.strictEqual((yield* call("/healthz")).status, 200)
    assert.strictEqual((yield* call("/readyz")).status, 503)
    const refused = yield* chat(`tg_${"0".repeat(41)}`)
    assert.strictEqual(refused.status, 503)
    assert.isBelow(refused.ms, atMost(2500))
    yield* Effect.all([cluster.start, server.start], { concurrency: 2 })
    const ready = yield* eventually(call("/readyz"), ({ status }) => status === 200)
    assert.strictEqual(ready.status, 200)
    yield* warmKey
  }).pipe(Effect.provide(layerGatewayOn()))
})
