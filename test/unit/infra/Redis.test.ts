import { Worker } from "node:worker_threads"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Schedule } from "effect"
import { layerRedis, Redis } from "../../../src/infra/Redis.ts"
import { layerPrivateRedis, layerTestRedis, TestRedis, TestRedisServer } from "../../support/TestRedis.ts"
import { maxWaitMs } from "../../support/wait.ts"
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

testWith(it.live, shared)(
  "when a command is refused or not answered, then the two errors differ, and neither is a defect",
  function* () {
    yield* ready
    const redis = yield* Redis
    yield* redis.send("SET", ["word", "x"])
    const refused = yield* Effect.flip(redis.send("INCR", ["word"]))
    assert.match(String(refused.cause), /not an integer/)
  }
)

test("when the server is gone, then commands fail at once, none is queued, and the client reconnects by itself", function* () {
  yield* ready
  const redis = yield* Redis
  const server = yield* TestRedisServer
  yield* server.kill
  yield* Effect.flip(redis.send("INCR", ["n"]))
  const refused = yield* Effect.flip(redis.send("INCR", ["n"]))
  assert.notInclude(String(refused.cause), "no answer in")
  yield* server.start
  yield* ready
  assert.isNull(yield* redis.send("GET", ["n"]))
})

test("when the server is frozen, then a command fails in time and is never sent twice", function* () {
  yield* ready
  const redis = yield* Redis
  const server = yield* TestRedisServer
  yield* server.pause
  const unanswered = yield* Effect.flip(redis.send("INCR", ["n"]))
  assert.strictEqual(unanswered.cause, "no answer in 200 ms")
  yield* server.resume
  yield* ready
  assert.isAtMost(Number(yield* redis.send("GET", ["n"])), 1)
})

testWith(it.live, layerPrivateRedis())("when there is no server, then the client is built", function* () {
  const server = yield* TestRedisServer
  yield* server.kill
  yield* Effect.gen(function* () {
    const redis = yield* Redis
    yield* Effect.flip(redis.send("PING", []))
    yield* server.start
    yield* ready
  }).pipe(Effect.provide(layerRedis({ url: Redacted.make(server.url) })))
})

/** Looks at the counter `n` until it is `count`, twice: whoever was answered in between has its answer. */
const looker = `
const { workerData: { url, count, flag } } = require("node:worker_threads")
const { hostname, pathname, port } = new URL(url)
const socket = require("node:net").connect(Number(port), hostname)
const ask = () => socket.write("GET n\\r\\n")
let seen = 0
socket.on("data", (bytes) => {
  if (String(bytes).includes("\\r\\n" + count + "\\r\\n")) seen += 1
  if (seen < 2) return void ask()
  Atomics.store(flag, 0, 1)
  Atomics.notify(flag, 0)
  socket.destroy()
})
socket.write("SELECT " + (pathname.slice(1) || "0") + "\\r\\n")
`

/** Reads nothing until the server has counted so far, and for longer than a command may take. */
const busyUntil = (url: string, count: number) =>
  Effect.sync(() => {
    const until = performance.now() + 300
    const flag = new Int32Array(new SharedArrayBuffer(4))
    const worker = new Worker(looker, { eval: true, workerData: { url, count, flag } })
    worker.unref()
    assert.notStrictEqual(Atomics.wait(flag, 0, 0, maxWaitMs), "timed-out")
    while (performance.now() < until);
  })

testWith(it.live, shared)(
  "when this process was too busy to write or read, then a command is not taken for unanswered",
  function* () {
    yield* ready
    const redis = yield* Redis
    const { url } = yield* TestRedis
    const sent = redis.send("INCR", ["n"])
    assert.deepStrictEqual(yield* Effect.all([sent, busyUntil(url, 1)], { concurrency: 2 }), [1, undefined])
    const written = Effect.andThen(
      Effect.callback<void>((resume) => void setImmediate(resume, Effect.void)),
      busyUntil(url, 2)
    )
    assert.deepStrictEqual(yield* Effect.all([sent, written], { concurrency: 2 }), [2, undefined])
    // The server answers in turn: what came before a later command is answered.
    const asked = Effect.all([redis.server, redis.send("INCR", ["n"]), busyUntil(url, 3)], {
      concurrency: 3
    })
    assert.isNotEmpty((yield* asked)[0].version, "what the server says of itself")
  }
)
