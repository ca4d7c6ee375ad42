/** The gateway's own requests for pinned models. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Queue } from "effect"
import { TestClock } from "effect/testing"
import { CircuitBreaker, layerCircuitBreaker } from "../../../../src/backend/CircuitBreaker.ts"
import { layerMemory as layerBackend } from "../../../support/twins/Backend.ts"
import { BackendFailed } from "../../../../src/domain/Errors.ts"
import { FairQueue, type PinnedLoad } from "../../../../src/gates/queue/FairQueue.ts"
import { layerPinned, Pins, PinsDown } from "../../../../src/gates/queue/pins.ts"
import { Drain } from "../../../../src/infra/Drain.ts"
import * as Metrics from "../../../../src/observability/Metrics.ts"
import { testWith } from "../../../support/testWith.ts"

const world = Effect.gen(function* () {
  const orders = yield* Queue.unbounded<PinnedLoad>()
  const told: Array<string> = []
  /** what happens next */
  const now: { pins: ReadonlyArray<string> | undefined; isUp: boolean } = { pins: ["p:latest"], isUp: true }
  const layer = layerPinned.pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        Layer.succeed(
          Pins,
          Pins.of({
            now: Effect.suspend(() =>
              now.pins === undefined ? new PinsDown({ cause: "test" }) : Effect.succeed(now.pins)
            )
          })
        ),
        Layer.succeed(
          FairQueue,
          FairQueue.of({
            limited: true,
            enter: () => Effect.die("not asked"),
            seeLoaded: () => undefined,
            pin: (names) => void told.push(`pinned ${names.join()}`),
            toLoad: Queue.take(orders),
            status: () => ({ running: 0, waiting: new Map(), models: [] })
          })
        ),
        layerBackend({
          models: Effect.succeed([]),
          reply: () => Effect.die("not asked"),
          load: (name) =>
            Effect.suspend(() => {
              told.push(`load ${name}`)
              return now.isUp ? Effect.void : new BackendFailed({ fault: "timeout" })
            })
        })
      )
    ),
    Layer.provideMerge(
      Layer.mergeAll(layerCircuitBreaker({ failures: 1, openMs: 60_000 }), Metrics.layer, Drain.layer)
    )
  )
  const context = yield* Layer.build(layer)
  const ask = Effect.fnUntraced(function* (name: string) {
    const over = yield* Queue.unbounded<boolean>()
    yield* Queue.offer(orders, { name, over: (isLoaded) => void Queue.offerUnsafe(over, isLoaded) })
    return yield* Queue.take(over)
  })
  return { ask, context, now, told }
})

const test = testWith(it.effect)

test("when the queue asks for a pinned model, then it is loaded, and the queue learns how that ended", function* () {
  const { ask, context, now, told } = yield* world
  assert.isTrue(yield* ask("p:latest"))
  now.isUp = false
  assert.isFalse(yield* ask("p:latest 4096"))
  assert.deepStrictEqual(told, ["pinned p:latest", "load p:latest", "load p:latest"])
  const text = yield* Effect.provideContext(
    Effect.flatMap(Metrics.Metrics, ({ exposition }) => exposition),
    context
  )
  assert.include(text, 'tollgate_pinned_loads_total{model="p:latest"} 1')
  assert.include(text, 'tollgate_background_failures_total{task="pinned_load"} 1')
})

test("when the circuit is open, then nothing is loaded; after that nobody has to ask first, and the next client is still the probe", function* () {
  const { ask, context, told } = yield* world
  const { guard, state } = yield* Effect.provideContext(CircuitBreaker, context)
  for (const keyId of ["one", "two"]) {
    const party = { keyId, keyPrefix: keyId, tenantId: "t", tenantName: "t" }
    yield* Effect.ignore(guard(party, Effect.fail("down"), () => "outage"))
  }
  assert.isFalse(yield* ask("p:latest"))
  assert.deepStrictEqual(told, ["pinned p:latest"])
  yield* TestClock.adjust("61 seconds")
  assert.isTrue(yield* ask("p:latest"))
  assert.include(told, "load p:latest")
  assert.strictEqual(yield* state, "half-open")
})

test("when the database does not answer, then the pins stay as they are", function* () {
  const { now, told } = yield* world
  yield* TestClock.adjust("1 second")
  now.pins = undefined
  yield* TestClock.adjust("30 seconds")
  assert.deepStrictEqual(new Set(told), new Set(["pinned p:latest"]))
  now.pins = []
  yield* TestClock.adjust("5 seconds")
  assert.strictEqual(told.at(-1), "pinned ")
})
