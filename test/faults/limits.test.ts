/** Limits and budgets while Redis forgets, refuses to write or is full: nobody gets more, nothing leaks, and it passes. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { Redis } from "ioredis"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import {
  auditRow,
  call,
  eventually,
  Fake,
  hello,
  layerFake,
  layerGatewayOn,
  newKey
} from "../support/Gateway.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedisServer } from "../support/TestRedis.ts"
import { expectRepairs } from "../support/watch.ts"
import { makeStopwatch, atMost } from "../support/wait.ts"

const leaseS = 3

const alone = layerGatewayOn({ CONCURRENCY_LEASE_S: String(leaseS) }).pipe(
  Layer.provideMerge(Layer.fresh(layerFake)),
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(layerPrivateRedis())
)

const command = Effect.fnUntraced(function* (name: string, ...args: ReadonlyArray<string>) {
  const { url } = yield* TestRedisServer
  return yield* Effect.acquireUseRelease(
    Effect.sync(() => new Redis(url)),
    (client) => Effect.promise(() => client.call(name, ...args)),
    (client) => Effect.sync(() => client.disconnect())
  )
})

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })
const typeOf = ({ text }: { readonly text: string }) => /"type":"(\w+)"/.exec(text)?.[1]

/** Recovery is within three seconds, whatever it was. */
const recovers = (secret: string) =>
  Effect.map(
    eventually(chat(secret), ({ status }) => status === 200),
    ({ status, text }) => assert.strictEqual(status, 200, text)
  )

layer(alone, { excludeTestServices: true })("limits on a Redis in trouble", (it) => {
  it.effect("when Redis forgets everything, then a spent budget stays spent", () =>
    Effect.gen(function* () {
      yield* expectRepairs
      const { secret, prefix } = yield* newKey()
      yield* Effect.flatMap(Registry, (registry) => registry.setBudgets(prefix, { total: 10 }))
      assert.strictEqual((yield* chat(secret)).status, 200)
      assert.strictEqual(typeOf(yield* chat(secret)), "budget_exceeded")
      for (let i = 0; i < 5; i++) {
        yield* command("FLUSHALL")
        const answer = yield* chat(secret)
        assert.deepStrictEqual([answer.status, typeOf(answer)], [429, "budget_exceeded"])
        assert.strictEqual(answer.headers.get("x-budget-tokens-remaining"), "0")
      }
    })
  )

  it.effect("when Redis forgets a running stream, then it has its slot again, and is charged once", () =>
    Effect.gen(function* () {
      yield* expectRepairs
      const backend = yield* Fake
      const { secret, prefix } = yield* newKey({ concurrent: 1 })
      yield* Effect.flatMap(Registry, (registry) => registry.setBudgets(prefix, { total: 10_000 }))
      backend.script({
        does: "stream",
        lines: [...Array.from({ length: 3 }, () => wire.chat("x")), wire.done()],
        gapMs: 1200
      })
      const arrived = backend.requests.length
      const stream = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }), {
        startImmediately: true
      })
      yield* backend.until(() => backend.requests.length > arrived)
      assert.strictEqual(typeOf(yield* chat(secret)), "concurrency_limit_exceeded")
      yield* command("FLUSHALL")
      // Until it is reminded the slot is nobody's: what gets through then is let through by a store that forgot.
      const again = yield* eventually(
        Effect.map(chat(secret), typeOf),
        (type) => type === "concurrency_limit_exceeded"
      )
      assert.strictEqual(again, "concurrency_limit_exceeded")
      const answer = yield* Fiber.join(stream)
      assert.deepInclude(yield* auditRow(answer.headers.get("x-request-id")), {
        status: 200,
        tokens_in: 7n,
        tokens_out: 3n
      })
      assert.strictEqual((yield* chat(secret)).status, 200)
    })
  )

  for (const { name, breaks, mends } of [
    {
      name: "a Redis that became a read-only replica",
      breaks: command("REPLICAOF", "127.0.0.1", "1"),
      mends: command("REPLICAOF", "NO", "ONE")
    },
    {
      name: "a full Redis",
      breaks: command("CONFIG", "SET", "maxmemory", "100kb"),
      mends: command("CONFIG", "SET", "maxmemory", "0")
    }
  ]) {
    it.effect(
      `when ${name}, then nothing is admitted after a second, nothing is settled wrong, and all works within three seconds`,
      () =>
        Effect.gen(function* () {
          const backend = yield* Fake
          const { secret } = yield* newKey()
          assert.strictEqual((yield* chat(secret)).status, 200)
          const calls = backend.requests.length
          yield* breaks
          const began = makeStopwatch()
          const refused = yield* chat(secret)
          assert.strictEqual(refused.status, 503, refused.text)
          assert.isBelow(began(), atMost(1500))
          assert.strictEqual(backend.requests.length, calls)
          yield* mends
          yield* recovers(secret)
        })
    )
  }
})
