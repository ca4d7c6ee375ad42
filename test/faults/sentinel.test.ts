/** Redis under sentinels: its master dies, a replica takes over, and the gateway follows by itself. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, hello, layerFake, layerGatewayOn, newKey } from "../support/Gateway.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { layerRedisSentinels, TestSentinels } from "../support/TestRedisSentinel.ts"

const world = layerGatewayOn().pipe(
  Layer.provideMerge(Layer.fresh(layerFake)),
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(layerRedisSentinels)
)

layer(world, { excludeTestServices: true })("with sentinels", (it) => {
  it.effect("when the master fails, then there are 503s for a while, and no budget is forgotten", () =>
    Effect.gen(function* () {
      const [fake, registry] = [yield* Fake, yield* Registry]
      const { master, masterPort } = yield* TestSentinels
      const { prefix, secret } = yield* newKey()
      yield* registry.setBudgets(prefix, { day: 1000 })
      const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
      // Each costs ten tokens.
      const first = yield* eventually(chat, ({ headers }) => headers.has("x-budget-period"))
      assert.strictEqual(first.status, 200, first.text)
      const left = Number(first.headers.get("x-budget-tokens-remaining"))
      assert.strictEqual(yield* masterPort, master.port)

      yield* master.kill
      const refused = yield* eventually(chat, ({ status }) => status !== 200)
      assert.strictEqual(refused.status, 503)
      const asked = fake.requests.length
      const during = yield* chat
      if (during.status !== 200) assert.strictEqual(fake.requests.length, asked)

      const served = yield* eventually(chat, ({ status }) => status === 200)
      assert.strictEqual(served.status, 200, served.text)
      assert.notStrictEqual(yield* masterPort, master.port)
      const remaining = Number(served.headers.get("x-budget-tokens-remaining"))
      assert.isAtMost(remaining, left - 10)

      // The old master comes back as a replica: nobody writes to it.
      yield* master.start
      yield* Effect.sleep("1 second")
      assert.strictEqual((yield* chat).status, 200)
    })
  )
})
