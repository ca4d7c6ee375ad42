/** What only a real Redis can do: its own clock, several clients, freezing, forgetting, losing answers, filling up. */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Schedule, Schema } from "effect"
import { type Calendar, makeCalendar, TimeZone } from "../../src/domain/Calendar.ts"
import { Meter, MeterDown, Missing, Reserved } from "../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { binary } from "../support/redisTls.ts"
import { freePort } from "../support/servers/processes.ts"
import { makeRedisServer } from "../support/servers/RedisServer.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { layerReadyRedis } from "../support/TestMeter.ts"
import { layerPrivateRedis, TestRedis, TestRedisServer } from "../support/TestRedis.ts"
import { atMost, eventually, makeStopwatch, maxWaitMs } from "../support/wait.ts"
import { alone, command, left, meterOn } from "../support/PrivateMeter.ts"
import { claimsOf, granted } from "./Meter.ts"
import { testWith } from "../support/testWith.ts"

/** Asks until Redis is back; a deadline makes a Redis that stays away a failure. */
const retried = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  effect.pipe(Effect.retry(Schedule.spaced("20 millis")), Effect.timeout(maxWaitMs))

const ask = (id: string, tokens = 0) => ({ id, tokens, slot: true })

const test = testWith(it.live, alone())

testWith(it.live, alone(0.3))("when a lease ends, then by Redis's own clock", function* () {
  const meter = yield* Meter
  const claims = claimsOf({ concurrent: 1, tpm: 100 })
  const a = granted(yield* meter.reserve(claims, ask("a", 60)))
  const b = yield* retried(
    Effect.filterOrFail(meter.reserve(claims, ask("b")), (verdict) => verdict instanceof Reserved)
  )
  // It was refused until then.
  assert.isAtLeast(b.reservation.admittedAt - a.reservation.admittedAt, 300)
  // The slot is free, what was held is not.
  assert.strictEqual(b.headroom.tokens.remaining, 40)
})

testWith(
  it.live,
  layerRedisMeter({ leaseS: 0.3, rememberS: 0.5 }).pipe(
    Layer.provideMerge(Layer.fresh(layerReadyRedis)),
    Layer.provideMerge(layerPrivateRedis())
  )
)("when a request has been forgotten, then its hold is given back all the same", function* () {
  const meter = yield* Meter
  const claims = claimsOf({ tpm: 100 })
  for (const id of ["settled", "cancelled"]) {
    granted(yield* meter.reserve(claims, ask(id, 30)))
  }
  const lapsed = Effect.map(meter.snapshot(claims.account, Date.now()), (survey) => survey.lapsed)
  const both = yield* eventually(lapsed, (ids) => ids.length === 2)
  assert.deepStrictEqual(both.toSorted(), ["cancelled", "settled"])
  yield* meter.cancel({ id: "cancelled", claims })
  const grip = { held: 0, available: 0, admittedAt: Date.now(), slot: false }
  yield* meter.settle({ id: "settled", claims, ...grip }, 10)
  assert.deepStrictEqual(yield* lapsed, [])
  assert.strictEqual((yield* left(claims)).tokens.remaining, 90)
})

test("when a request has ended, then Redis remembers it for a quarter of an hour, or for two leases", function* () {
  const claims = claimsOf({ tpm: 100 })
  const remembered = Effect.fnUntraced(function* (leaseS: number) {
    const meter = yield* Effect.map(Layer.build(meterOn(leaseS)), Context.get(Meter))
    const id = `lease-${leaseS}`
    const { reservation } = granted(yield* meter.reserve(claims, ask(id, 10)))
    yield* meter.settle(reservation, 10)
    const keys = yield* Schema.decodeUnknownEffect(Schema.Array(Schema.String))(
      yield* command("KEYS", `*${id}*`)
    )
    assert.lengthOf(keys, 1)
    return Number(yield* command("PTTL", keys[0] ?? "")) / 1000
  })
  assert.closeTo(yield* remembered(30), 900, 5)
  assert.closeTo(yield* remembered(600), 1200, 5)
})

test("when two clients send 5000 reserves at once, then no more are admitted than the limits allow", function* () {
  const { url } = yield* TestRedis
  const other = yield* Layer.build(meterOn(30).pipe(Layer.provide(Layer.succeed(TestRedis, { url }))))
  const meters = [yield* Meter, yield* Effect.provide(Meter, other)] as const
  const claims = claimsOf({ rpm: 4000, tpm: 100_000, concurrent: 333, budgets: { total: 2000 } })
  yield* (yield* Meter).load(claims.account, [{ counter: "total", tokens: 0 }])
  const verdicts = yield* Effect.forEach(
    Array.from({ length: 5000 }, (_, i) => i),
    // A busy machine may miss the command timeout: asked again, it answers what it had decided.
    (i) => retried(meters[i % 2 === 0 ? 0 : 1].reserve(claims, ask(`m${i}`, 7))),
    { concurrency: 200 }
  )
  const reserved = verdicts.flatMap((verdict) => (verdict instanceof Reserved ? [verdict.reservation] : []))
  const held = reserved.reduce((sum, { held }) => sum + held, 0)
  assert.strictEqual(held, 2000)
  assert.strictEqual(reserved.length, Math.ceil(2000 / 7))
})

test("when Redis is frozen, then calls fail within the command timeout, and what it runs later changes nothing", function* () {
  const [meter, server] = [yield* Meter, yield* TestRedisServer]
  const claims = claimsOf({ rpm: 5, concurrent: 1 })
  yield* server.pause
  const begun = makeStopwatch()
  assert.instanceOf(yield* Effect.flip(meter.reserve(claims, ask("a", 50))), MeterDown)
  assert.isBelow(begun(), atMost(700))
  // What the request path does with an answer it never got.
  assert.instanceOf(yield* Effect.flip(meter.cancel({ id: "a", claims })), MeterDown)
  yield* server.resume
  yield* retried(meter.cancel({ id: "a", claims }))
  const headroom = yield* left(claims)
  assert.deepStrictEqual([headroom.requests.remaining, headroom.tokens.remaining], [5, 100_000])
  granted(yield* meter.reserve(claims, ask("b")))
})

test("when a request is ended by a process in another zone, then it is charged to the day of its admission", function* () {
  const redis = Layer.succeed(Redis, yield* Redis)
  // Whatever the time, these have different dates.
  const [there, here] = ["Pacific/Kiritimati", "Pacific/Pago_Pago"].map(makeCalendar)
  if (there === undefined || here === undefined) return
  const meterIn = (calendar: Calendar) =>
    Effect.map(
      Layer.build(
        layerRedisMeter({ leaseS: 30, prefix: "zones:" }).pipe(
          Layer.provide([redis, Layer.succeed(TimeZone, calendar)])
        )
      ),
      Context.get(Meter)
    )
  const [one, other] = [yield* meterIn(there), yield* meterIn(here)]
  const claims = claimsOf({ budgets: { day: 1000, week: 1000 } })
  const load = (calendar: Calendar) =>
    one.load(
      claims.account,
      Object.values(calendar.dayAt(Date.now()).counters).map((counter) => ({ counter, tokens: 0 }))
    )
  yield* load(there)
  yield* load(here)
  const { reservation } = granted(yield* one.reserve(claims, ask("a", 100)))
  assert.strictEqual((yield* other.renew(reservation, 20, 200)).held, 200)
  yield* other.settle(reservation, 30)
  const now = Date.now()
  assert.strictEqual((yield* one.snapshot(claims.account, now)).totals.day, 30)
  assert.strictEqual((yield* other.snapshot(claims.account, now)).totals.day, 0)
})

test("when Redis comes back with an older snapshot, then its totals do not count", function* () {
  const [meter, server] = [yield* Meter, yield* TestRedisServer]
  const claims = claimsOf({ budgets: { total: 1000 } })
  yield* meter.load(claims.account, [{ counter: "total", tokens: 0 }])
  const { reservation } = granted(yield* meter.reserve(claims, ask("a", 100)))
  yield* command("SAVE")
  granted(yield* meter.reserve(claims, ask("b", 500)))
  yield* server.kill
  yield* server.start
  const missing = new Missing({
    instant: Math.floor(Date.now() / 86_400_000) * 86_400_000,
    counters: { total: "total" }
  })
  assert.deepStrictEqual(yield* retried(meter.peek(claims)), missing)
  assert.deepStrictEqual(yield* meter.reserve(claims, ask("c", 1)), missing)
  yield* meter.load(claims.account, [{ counter: "total", tokens: 600 }])
  assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 400)
  // It was admitted a moment before the load: the ledger may not have had it yet.
  assert.strictEqual((yield* meter.settle(reservation, 30)).budgets.total?.remaining, 370)
})

test("when Redis is full, then nothing is admitted, it is not ready, and requests still end", function* () {
  const meter = yield* Meter
  const claims = claimsOf({ concurrent: 1, tpm: 100 })
  const { reservation } = granted(yield* meter.reserve(claims, ask("a", 60)))
  yield* command("CONFIG", "SET", "maxmemory", "100kb")
  assert.instanceOf(yield* Effect.flip(meter.reserve(claims, ask("b"))), MeterDown)
  assert.instanceOf(yield* Effect.flip(meter.ping), MeterDown)
  assert.strictEqual((yield* meter.settle(reservation, 10)).tokens.remaining, 90)
  yield* command("CONFIG", "SET", "maxmemory", "0")
  yield* meter.ping
  granted(yield* meter.reserve(claims, ask("b")))
})

test("when keys are left alone, then each expires by itself", function* () {
  const meter = yield* Meter
  const claims = claimsOf({})
  yield* meter.load(
    claims.account,
    [new Date().toISOString().slice(0, 10), "total"].map((counter) => ({ counter, tokens: 0 }))
  )
  const { reservation } = granted(yield* meter.reserve(claims, ask("a", 60)))
  granted(yield* meter.reserve(claims, ask("b", 60)))
  yield* meter.renew(reservation, 5, 70)
  yield* meter.settle(reservation, 50)
  yield* meter.cancel({ id: "never", claims })
  const keys = yield* Schema.decodeUnknownEffect(Schema.Array(Schema.String))(yield* command("KEYS", "*"))
  assert.isAtLeast(keys.length, 6)
  for (const key of keys) {
    assert.isAbove(Number(yield* command("PTTL", key)), 0, key)
    assert.include(key, "{g}", "version 1.0.0 counts in the same keys")
  }
})

test("when a reply is lost, then it is an error once, and the repeated call finds what the first had done", function* () {
  const proxy = yield* makeFaultProxy({ host: "127.0.0.1", port: (yield* TestRedisServer).port })
  const url = `redis://127.0.0.1:${proxy.port}`
  const through = yield* Layer.build(meterOn(30).pipe(Layer.provide(Layer.succeed(TestRedis, { url }))))
  const meter = yield* Effect.provide(Meter, through)
  const claims = claimsOf({ rpm: 9, concurrent: 5, tpm: 100 })
  yield* meter.settle(granted(yield* meter.reserve(claims, ask("warm"))).reservation, 0)
  yield* proxy.loseReply("evalsha")
  assert.instanceOf(yield* Effect.flip(meter.reserve(claims, ask("a", 40))), MeterDown)
  const { reservation, headroom } = granted(yield* retried(meter.reserve(claims, ask("a", 40))))
  assert.deepStrictEqual([headroom.requests.remaining, headroom.tokens.remaining], [7, 60])
  yield* proxy.loseReply("evalsha")
  assert.instanceOf(yield* Effect.flip(meter.settle(reservation, 30)), MeterDown)
  const after = yield* retried(meter.settle(reservation, 30))
  assert.deepStrictEqual([after.requests.remaining, after.tokens.remaining], [7, 70])
})

test("when Redis evicts keys, then nothing is admitted and it is not ready until it stops, and running requests are settled", function* () {
  const meter = yield* Meter
  const claims = claimsOf({ tpm: 100 })
  const { reservation } = granted(yield* meter.reserve(claims, ask("a", 60)))
  yield* command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
  // Readiness asks, and each request goes by what it found.
  assert.instanceOf(yield* Effect.flip(meter.ping), MeterDown)
  assert.include(String((yield* Effect.flip(meter.reserve(claims, ask("c", 1)))).cause), "allkeys-lru")
  const { url } = yield* TestRedis
  const later = yield* Layer.build(meterOn(30).pipe(Layer.provide(Layer.succeed(TestRedis, { url }))))
  const other = yield* Effect.provide(Meter, later)
  const error = yield* Effect.flip(other.reserve(claims, ask("b", 1)))
  assert.include(String(error.cause), "allkeys-lru")
  assert.instanceOf(yield* Effect.flip(other.ping), MeterDown)
  assert.strictEqual((yield* other.settle(reservation, 10)).tokens.remaining, 90)
  yield* command("CONFIG", "SET", "maxmemory-policy", "noeviction")
  yield* meter.ping
  granted(yield* meter.reserve(claims, ask("d", 1)))
})

testWith(it.live)(
  "when Redis is a node of a Redis Cluster, then nothing is admitted, and it is not ready",
  function* () {
    const bus = String(yield* freePort)
    const { url } = yield* makeRedisServer(binary(), ["--cluster-enabled", "yes", "--cluster-port", bus])
    const meter = yield* Effect.provide(
      Meter,
      yield* Layer.build(meterOn(30).pipe(Layer.provide(Layer.succeed(TestRedis, { url }))))
    )
    const isNode = ({ cause }: MeterDown) => String(cause).startsWith("Redis is a node of a Redis Cluster")
    assert.isTrue(isNode(yield* eventually(Effect.flip(meter.ping), isNode)))
    assert.isTrue(isNode(yield* Effect.flip(meter.reserve(claimsOf({}), ask("a")))))
  }
)

test("when Redis starts, then the run has a name of its own, which is known only while connected", function* () {
  const [server, redis] = [yield* TestRedisServer, yield* Redis]
  const first = yield* redis.server
  assert.match(first.runId, /^[0-9a-f]{40}$/)
  assert.strictEqual(redis.runId(), first.runId)
  assert.strictEqual(yield* redis.server, first, "the facts of a connection are kept")
  yield* server.kill
  yield* retried(Effect.filterOrFail(Effect.sync(redis.runId), (runId) => runId === ""))
  yield* server.start
  const second = yield* retried(redis.server)
  assert.notStrictEqual(second.runId, first.runId)
  // A server tells its name a moment before its connection is ready.
  const known = Effect.filterOrFail(Effect.sync(redis.runId), (runId) => runId !== "")
  assert.strictEqual(yield* retried(known), second.runId)
})

test("when an account was restored, then each process knows it until Redis forgets everything", function* () {
  const meter = yield* Meter
  const ask = meter.hasState
  assert.deepStrictEqual([yield* ask, yield* ask, yield* ask], [false, true, true])
  yield* command("FLUSHALL")
  assert.deepStrictEqual([yield* ask, yield* ask], [false, true])
  const { url } = yield* TestRedis
  const later = yield* Layer.build(meterOn(30).pipe(Layer.provide(Layer.succeed(TestRedis, { url }))))
  const other = yield* Effect.provide(Meter, later)
  assert.deepStrictEqual([yield* other.hasState, yield* ask], [false, true])
})
