import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Schedule } from "effect"
import { layerRedis, Redis } from "../../../src/infra/Redis.ts"
import { layerPrivateRedis, layerTestRedis, TestRedis, TestRedisServer } from "../../support/TestRedis.ts"
import { atMost, makeStopwatch } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"

const client = Layer.unwrap(
  Effect.map(TestRedis, ({ url }) => layerRedis({ url: Redacted.make(url), commandTimeoutMs: 200 }))
)
const shared = client.pipe(Layer.provideMerge(layerTestRedis))
const own = client.pipe(Layer.provideMerge(layerPrivateRedis()))

/** The connection is made in the background. */
const ready = Effect.flatMap(Redis, (redis) =>
  redis.send("PING", []).pipe(Effect.retry({ schedule: Schedule.spaced("20 millis"), times: 250 }))
)

const test = testWith(it.live, own)

test("when the server has forgotten a script, then it is loaded again", function* () {
  yield* ready
  const redis = yield* Redis
  const add = redis.script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
  assert.strictEqual(yield* add(["n"], [2]), 2)
  yield* redis.send("SCRIPT", ["FLUSH"])
  assert.strictEqual(yield* add(["n"], [3]), 5)
})

it.live(
  "when a command is refused or not answered, then the two errors differ, and neither is a defect",
  () =>
    Effect.gen(function* () {
      yield* ready
      const redis = yield* Redis
      yield* redis.send("SET", ["word", "x"])
      const refused = yield* Effect.flip(redis.send("INCR", ["word"]))
      assert.match(String(refused.cause), /not an integer/)
    }).pipe(Effect.provide(shared))
)

test("when the server is gone, then commands fail at once, none is queued, and the client reconnects by itself", function* () {
  yield* ready
  const redis = yield* Redis
  const server = yield* TestRedisServer
  yield* server.kill
  yield* Effect.flip(redis.send("INCR", ["n"]))
  const before = makeStopwatch()
  yield* Effect.flip(redis.send("INCR", ["n"]))
  assert.isBelow(before(), 150)
  yield* server.start
  yield* ready
  assert.isNull(yield* redis.send("GET", ["n"]))
})

test("when the server is frozen, then a command fails in time and is never sent twice", function* () {
  yield* ready
  const redis = yield* Redis
  const server = yield* TestRedisServer
  yield* server.pause
  const before = makeStopwatch()
  yield* Effect.flip(redis.send("INCR", ["n"]))
  assert.isBelow(before(), atMost(1000))
  yield* server.resume
  yield* ready
  assert.isAtMost(Number(yield* redis.send("GET", ["n"])), 1)
})

it.live("when there is no server, then the client is built", () =>
  Effect.gen(function* () {
    const server = yield* TestRedisServer
    yield* server.kill
    yield* Effect.gen(function* () {
      const redis = yield* Redis
      yield* Effect.flip(redis.send("PING", []))
      yield* server.start
      yield* ready
    }).pipe(Effect.provide(layerRedis({ url: Redacted.make(server.url) })))
  }).pipe(Effect.provide(layerPrivateRedis()))
)

it.live("when this process was too busy to write or read, then a command is not taken for unanswered", () =>
  Effect.gen(function* () {
    yield* ready
    const redis = yield* Redis
    const busy = Effect.sync(() => {
      const until = performance.now() + 300
      while (performance.now() < until);
    })
    const asked = redis.send("INCR", ["n"])
    assert.deepStrictEqual(yield* Effect.all([asked, busy], { concurrency: 2 }), [1, undefined])
    const written = Effect.andThen(
      Effect.callback<void>((resume) => void setImmediate(resume, Effect.void)),
      busy
    )
    assert.deepStrictEqual(yield* Effect.all([asked, written], { concurrency: 2 }), [2, undefined])
    assert.isNotEmpty(
      (yield* Effect.all([redis.servers, busy], { concurrency: 2 }))[0],
      "what the server says of itself"
    )
  }).pipe(Effect.provide(shared))
)
