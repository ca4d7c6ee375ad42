/** The connection on which a replica hears that a request has got its place in line. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { fake } from "../support/FakeBackend.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { eventually, Fake, generous, layerFake, newKey } from "../support/Gateway.ts"
import { chatWith, makeGatewayOnStores } from "../support/GatewayProcess.ts"
import { reply } from "../support/redisTls.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedis } from "../support/TestRedis.ts"
import { testWith } from "../support/testWith.ts"

const layerRegistered = layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(TestPostgres))

const test = testWith(it.live, Layer.mergeAll(layerFake, layerRegistered, layerPrivateRedis()))

test("when it breaks each time the replica subscribes again, then the gateway lives, subscribes once it is whole, and serves", function* () {
  const { url } = yield* TestRedis
  const redis = new URL(url)
  const proxy = yield* makeFaultProxy({ host: redis.hostname, port: Number(redis.port) })
  redis.port = String(proxy.port)
  const backend = yield* Fake
  const { secret } = yield* newKey()
  backend.always({ does: "stream", lines: [fake.chat("a"), fake.chat("b"), fake.done()], gapMs: 100 })
  const gateway = yield* makeGatewayOnStores({ REDIS_URL: redis.href, BACKEND_MAX_CONCURRENT: "1" })
  const chat = chatWith(gateway, secret)
  const awaitSubscription = Effect.map(
    eventually(reply(url, "PUBSUB", "CHANNELS", "*:told:*"), (channels) => String(channels) !== ""),
    (channels) => assert.include(String(channels), ":told:", gateway.printed())
  )
  yield* awaitSubscription
  const times = 3
  const { cuts } = proxy
  yield* proxy.cutAfter("subscribe", "toServer", { drop: true, times })
  yield* proxy.reset
  yield* eventually(
    Effect.sync(() => proxy.cuts),
    (now) => now === cuts + times
  )
  assert.strictEqual(proxy.cuts, cuts + times, gateway.printed())
  yield* awaitSubscription
  const served = (answer: { readonly status: number }) => answer.status === 200
  const together = yield* eventually(Effect.all([chat, chat], { concurrency: "unbounded" }), (answers) =>
    answers.every(served)
  )
  assert.isTrue(together.every(served), gateway.printed())
  assert.strictEqual(yield* gateway.stop, 0, gateway.printed())
})
