/** Told to stop, a gateway waits for its streams; told again, it does not. */
import { spawn } from "node:child_process"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Option } from "effect"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { isAlive, readRuntime } from "../../src/infra/embedded/RuntimeFile.ts"
import { root } from "../support/Checkout.ts"
import { folder } from "../support/embedded.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { Fake, generous, hello, layerFake } from "../support/Gateway.ts"
import { makeGatewayOnStores, post } from "../support/GatewayProcess.ts"
import { layerPrivatePostgres, TestCluster, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { freePort } from "../support/servers/processes.ts"
import { comesTrue, eventually } from "../support/wait.ts"
import { inWorld, testWith } from "../support/testWith.ts"

const world = Layer.mergeAll(
  Layer.provideMerge(layerRegistry({ defaults: generous }), TestPostgres),
  layerTestRedis,
  layerFake
)

const test = testWith(it.live)

test("when npm alone is told to stop, then the gateway ends", function* () {
  const [dataDir, port] = [yield* folder(0o755), yield* freePort]
  const npm = spawn("npm", ["start"], {
    cwd: root,
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], DATA_DIR: dataDir, PORT: String(port) },
    stdio: "ignore"
  })
  const running = yield* eventually(Effect.orDie(readRuntime(dataDir)), (read) =>
    Option.exists(read, ({ baseUrl }) => baseUrl !== undefined)
  )
  const { pid } = Option.getOrThrow(running)
  yield* Effect.addFinalizer(() => Effect.sync(() => void (isAlive(pid) && process.kill(pid, "SIGKILL"))))
  npm.kill("SIGTERM")
  assert.isTrue(yield* comesTrue(() => !isAlive(pid)))
})

let serial = 0

/** A gateway with a stream of about three seconds under way. */
const busy = Effect.fnUntraced(function* (graceMs: number) {
  const [fake, registry, tenant] = [yield* Fake, yield* Registry, `t${++serial}`]
  yield* registry.createTenant({ name: tenant, allowAllModels: true })
  const { secret } = yield* registry.createKey({ tenant, name: "k" })
  const gateway = yield* makeGatewayOnStores({ SHUTDOWN_GRACE_MS: String(graceMs) })
  const asked = fake.requests.length
  fake.script({
    does: "stream",
    lines: [...Array.from({ length: 15 }, (_, i) => wire.chat(` ${i}`)), wire.done()],
    gapMs: 200
  })
  const stream = yield* Effect.forkChild(Effect.map(post(gateway, secret, hello()), ({ text }) => text))
  yield* fake.until(() => fake.requests.length > asked)
  return { gateway, stream }
})

inWorld(world)("a gateway that is told to stop twice", (test) => {
  test("when the second signal comes, then it ends at once, with its own exit code", function* () {
    const { gateway, stream } = yield* busy(60_000)
    const first = yield* Effect.forkChild(gateway.stop, { startImmediately: true })
    yield* Effect.sleep("1200 millis")
    assert.strictEqual(yield* gateway.stop, 143)
    assert.strictEqual(yield* Fiber.join(first), 143)
    assert.notInclude(yield* Fiber.join(stream), '"done":true')
    assert.include(gateway.printed(), "stopped at once")
  })

  test("when both signals come at once, then they count as one: npm passes on a Ctrl-C that has arrived already", function* () {
    const { gateway, stream } = yield* busy(60_000)
    const first = yield* Effect.forkChild(gateway.stop, { startImmediately: true })
    yield* Effect.sleep("100 millis")
    assert.strictEqual(yield* gateway.stop, 0)
    assert.strictEqual(yield* Fiber.join(first), 0)
    assert.include(yield* Fiber.join(stream), '"done":true')
  })
})

testWith(
  it.live,
  Layer.mergeAll(
    Layer.provideMerge(layerRegistry({ defaults: generous }), layerPrivatePostgres()),
    layerTestRedis,
    layerFake
  )
)("when a gateway is told to stop while its database is frozen, then it ends in time", function* () {
  const cluster = yield* TestCluster
  const { gateway } = yield* busy(500)
  yield* cluster.pause
  assert.strictEqual(yield* gateway.stop, 1)
  assert.include(gateway.printed(), "could not stop in time")
  yield* cluster.resume
})
