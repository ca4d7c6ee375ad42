/** One address for a master of Redis and its replica, as a managed service has it: the master dies, the replica takes over. */
import { assert } from "@effect/vitest"
import { Effect, Layer, Schedule } from "effect"
import { Redis } from "ioredis"
import { Registry } from "../../src/admin/Registry.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { call, eventually, Fake, hello, layerFake, layerGatewayOn, newKey } from "../support/Gateway.ts"
import { binary } from "../support/redisTls.ts"
import { makeRedisServer } from "../support/servers/RedisServer.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { TestRedis } from "../support/TestRedis.ts"
import { inWorld } from "../support/testWith.ts"

const tell = (port: number, command: string, ...words: ReadonlyArray<string>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new Redis(port)),
    (client) => Effect.promise(() => client.call(command, ...words)),
    (client) => Effect.sync(() => client.disconnect())
  )

const pair = Effect.gen(function* () {
  const master = yield* makeRedisServer(binary(), ["--repl-diskless-sync-delay", "0"])
  const replica = yield* makeRedisServer(binary(), ["--replicaof", "127.0.0.1", String(master.port)])
  yield* tell(replica.port, "INFO", "replication").pipe(
    Effect.repeat({
      schedule: Schedule.spaced("50 millis"),
      until: (info) => String(info).includes("master_link_status:up")
    })
  )
  const proxy = yield* makeFaultProxy({ host: "127.0.0.1", port: master.port })
  return { master, replica, proxy }
})

const testAndWorld = Effect.map(pair, (stores) => ({
  stores,
  world: layerGatewayOn().pipe(
    Layer.provideMerge(Layer.fresh(layerFake)),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.succeed(TestRedis, { url: `redis://127.0.0.1:${stores.proxy.port}` }))
  )
}))

inWorld(Layer.empty)("Redis behind one address", (test) => {
  test("when a replica takes over from the master, then there are 503s meanwhile, and no budget is forgotten", function* () {
    const { stores, world } = yield* testAndWorld
    const { master, proxy, replica } = stores
    yield* Effect.gen(function* () {
      const [fake, registry] = [yield* Fake, yield* Registry]
      const { prefix, secret } = yield* newKey()
      yield* registry.changeKey(prefix, { budgetDaily: 1000 })
      const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
      // Each costs ten tokens.
      const first = yield* eventually(chat, ({ headers }) => headers.has("x-budget-period"))
      assert.strictEqual(first.status, 200, first.text)
      const left = Number(first.headers.get("x-budget-tokens-remaining"))

      yield* master.kill
      const refused = yield* eventually(chat, ({ status }) => status !== 200)
      assert.strictEqual(refused.status, 503)
      // The address leads to the replica before that is promoted.
      yield* proxy.moveTo({ host: "127.0.0.1", port: replica.port })
      const asked = fake.requests.length
      for (let i = 0; i < 5; i += 1) assert.strictEqual((yield* chat).status, 503)
      assert.strictEqual(fake.requests.length, asked)

      yield* tell(replica.port, "REPLICAOF", "NO", "ONE")
      const served = yield* eventually(chat, ({ status }) => status === 200)
      assert.strictEqual(served.status, 200, served.text)
      assert.isAtMost(Number(served.headers.get("x-budget-tokens-remaining")), left - 10)
    }).pipe(Effect.provide(world))
  })
})
