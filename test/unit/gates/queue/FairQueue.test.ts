import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { CapacityExceeded, ShuttingDown, Unavailable } from "../../../../src/domain/Errors.ts"
import { Drain } from "../../../../src/infra/Drain.ts"
import { layer as layerMetrics } from "../../../../src/observability/Metrics.ts"
import { FairQueue } from "../../../../src/gates/queue/FairQueue.ts"
import { beatMs, layerFromStore } from "../../../../src/gates/queue/fromStore.ts"
import { layerMemoryOf, QueueMemory } from "../../../../src/gates/queue/memory.ts"
import {
  allReportedMs,
  defaultGraceMs,
  QueueStore,
  QueueStoreDown,
  type Ticket
} from "../../../../src/gates/queue/QueueStore.ts"
import { arrivalOf, callerWith, reservedFor } from "../../../support/permits.ts"
import type { Steps } from "../../../support/testWith.ts"

const ticket = (id: string, tenant = "t"): Ticket => ({
  id,
  tenant,
  key: "k",
  model: "m",
  weight: 1,
  priority: "interactive",
  cost: 100
})

/** The request of a ticket, with claims that were granted. */
const requestOf = ({ cost, id, key, priority, tenant, weight }: Ticket, user?: string, keyId = key) => {
  const caller = { ...callerWith("all"), accountId: key, keyId, priority, tenantId: tenant, weight }
  const { budgets, limits } = caller
  return reservedFor("m", {
    arrival: arrivalOf(id),
    caller,
    expectedTokens: cost,
    ...(user === undefined
      ? {}
      : {
          reservation: {
            claims: {
              account: { group: tenant, key },
              limits,
              budgets,
              user: { id: user, limits, budgets }
            }
          }
        })
  })
}

const options = { places: 1, depth: 4, maxWaitMs: 30_000 }

/** A store whose calls can be made to fail. */
const makeStore = (memory: QueueMemory) => {
  let [down, deaf] = [false, false]
  const left: Array<string> = []
  const layer = Layer.effect(
    QueueStore,
    Effect.map(QueueStore, (store) => {
      const unless = <A>(call: Effect.Effect<A, QueueStoreDown>) =>
        Effect.suspend(() => (down ? new QueueStoreDown({ cause: "away" }) : call))
      return QueueStore.of({
        enter: (one, bounds) => unless(store.enter(one, bounds)),
        leave: (id, bounds) => {
          left.push(id)
          return unless(store.leave(id, bounds))
        },
        end: (id, used, bounds) => unless(store.end(id, used, bounds)),
        beat: (...report) => unless(store.beat(...report)),
        restore: (held, bounds) => unless(store.restore(held, bounds)),
        onMessage: (listener) => store.onMessage((message) => (deaf ? Effect.void : listener(message)))
      })
    })
  ).pipe(Layer.provide(layerMemoryOf(memory)))
  return {
    layer,
    left,
    setDown: (value: boolean) => void (down = value),
    setDeaf: (value: boolean) => void (deaf = value)
  }
}

const test = (
  behaviour: string,
  steps: Steps<
    Drain | FairQueue,
    [
      world: {
        /** ids the store was told of that left */
        readonly left: ReadonlyArray<string>
        readonly memory: QueueMemory
        readonly setDown: (down: boolean) => void
        /** whether messages are lost */
        readonly setDeaf: (deaf: boolean) => void
      }
    ]
  >
) =>
  it.effect(behaviour, () =>
    Effect.suspend(() => {
      const memory = new QueueMemory({ leaseS: 30 })
      const { layer, left, setDeaf, setDown } = makeStore(memory)
      return Effect.gen(() => steps({ left, memory, setDeaf, setDown })).pipe(
        Effect.scoped,
        Effect.provide(
          layerFromStore(options).pipe(Layer.provide([layer, layerMetrics]), Layer.provideMerge(Drain.layer))
        )
      )
    })
  )

/** Has a place until the scope it answers is closed. */
const enter = Effect.fnUntraced(function* (id: string, used = 100, tenant = "t", user?: string) {
  const scope = yield* Scope.make()
  const { facts } = yield* Effect.provideService(
    (yield* FairQueue).enter(requestOf(ticket(id, tenant), user), () => used),
    Scope.Scope,
    scope
  )
  return { queuedMs: facts.place?.queuedMs, close: Scope.close(scope, Exit.void) }
})

const waiting = Effect.map(FairQueue, (queue) => queue.status().waiting.get("t") ?? 0)

describe("the line in front of the backend", () => {
  test("when a place is free, then nobody waits; when it is taken, then the next waits for it and says how long", function* () {
    const first = yield* enter("1")
    assert.strictEqual(first.queuedMs, 0)
    const second = yield* Effect.forkChild(enter("2"))
    yield* TestClock.adjust("1500 millis")
    assert.strictEqual(yield* waiting, 1)
    yield* first.close
    const { close, queuedMs } = yield* Fiber.join(second)
    assert.strictEqual(queuedMs, 1500)
    assert.strictEqual((yield* FairQueue).status().running, 1)
    yield* close
    assert.strictEqual((yield* FairQueue).status().running, 0)
  })

  test("when users of one key have accounts of their own, then they take turns as keys do", function* () {
    const first = yield* enter("1", 100, "t", "ada")
    const order: Array<string> = []
    for (const [id, user] of [
      ["2", "ada"],
      ["3", "ada"],
      ["4", "bob"]
    ] as const) {
      yield* Effect.forkChild(
        Effect.flatMap(enter(id, 100, "t", user), ({ close }) => {
          order.push(user)
          return close
        })
      )
      yield* TestClock.adjust("10 millis")
    }
    yield* first.close
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(order.slice(0, 2), ["bob", "ada"])
    assert.lengthOf(order, 3)
  })

  test("when a key and the one that replaces it wait, then together they take turns as one key", function* () {
    const queue = yield* FairQueue
    const used = { tokens: 100, loadMs: undefined }
    const order: Array<string> = []
    const ask = (id: string, key: string, keyId: string) =>
      Effect.scoped(
        Effect.tap(
          queue.enter(requestOf({ ...ticket(id), key }, undefined, keyId), () => used),
          () => Effect.sync(() => order.push(keyId))
        )
      )
    const first = yield* enter("1")
    for (const [id, key, keyId] of [
      ["2", "k", "its successor"],
      ["3", "k", "k"],
      ["4", "other", "other"]
    ] as const) {
      yield* Effect.forkChild(ask(id, key, keyId))
      yield* TestClock.adjust("10 millis")
    }
    yield* first.close
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(order, ["other", "its successor", "k"])
  })

  test("when the key of a request that waits is stopped, then it leaves the line, and what has a place keeps it", function* ({
    left,
    memory
  }) {
    const { close } = yield* enter("1")
    const second = yield* Effect.forkChild(Effect.flip(enter("2")))
    yield* TestClock.adjust("10 millis")
    const drain = yield* Drain
    drain.stop(requestOf(ticket("2")).facts.caller.keyPrefix)
    assert.instanceOf(yield* Fiber.join(second), ShuttingDown)
    assert.deepStrictEqual([memory.scheduler(0).waiting, left], [0, ["2"]])
    assert.strictEqual((yield* FairQueue).status().running, 1)
    yield* close
  })

  test("when the wait is too long, then it is refused with a Retry-After and its place in line is gone", function* ({
    left,
    memory
  }) {
    yield* enter("1")
    const second = yield* Effect.forkChild(Effect.flip(enter("2")))
    yield* TestClock.adjust(options.maxWaitMs)
    const error = yield* Fiber.join(second)
    assert.instanceOf(error, CapacityExceeded)
    assert.strictEqual(memory.scheduler(0).waiting, 0)
    assert.deepStrictEqual(left, ["2"], "the store is told once")
  })

  test("when another tenant comes to a full queue, then the newest request of the crowd is refused and left once", function* ({
    left,
    memory
  }) {
    yield* enter("1")
    const crowd = yield* Effect.forEach(["2", "3", "4", "5"], (id) =>
      Effect.forkChild(Effect.flip(enter(id)))
    )
    yield* Effect.yieldNow
    const few = yield* Effect.forkChild(enter("few", 100, "few"))
    yield* Effect.yieldNow
    const newest = crowd[3]
    if (newest === undefined) return assert.fail("no crowd")
    const error = yield* Fiber.join(newest)
    assert.instanceOf(error, CapacityExceeded)
    assert.strictEqual(memory.scheduler(0).waiting, 4)
    assert.strictEqual(yield* waiting, 3)
    assert.deepStrictEqual(left, [])
    yield* Fiber.interrupt(few)
  })

  test("when the message that it was displaced is lost, then the next beat tells", function* ({ setDeaf }) {
    yield* enter("1")
    const crowd = yield* Effect.forEach(["2", "3", "4", "5"], (id) =>
      Effect.forkChild(Effect.flip(enter(id)))
    )
    yield* Effect.yieldNow
    setDeaf(true)
    const few = yield* Effect.forkChild(enter("few", 100, "few"))
    yield* Effect.yieldNow
    setDeaf(false)
    assert.isUndefined(crowd[3]?.pollUnsafe())
    yield* TestClock.adjust(beatMs)
    assert.isDefined(crowd[3]?.pollUnsafe())
    assert.isUndefined(crowd[2]?.pollUnsafe())
    yield* Fiber.interrupt(few)
  })

  test("when a client leaves the line, then it costs nothing and the others move up", function* ({ memory }) {
    const first = yield* enter("1")
    const second = yield* Effect.forkChild(enter("2"))
    const third = yield* Effect.forkChild(enter("3"))
    yield* Effect.yieldNow
    yield* Fiber.interrupt(second)
    assert.strictEqual(memory.scheduler(0).waiting, 1)
    yield* first.close
    yield* (yield* Fiber.join(third)).close
    assert.strictEqual(memory.scheduler(0).running, 0)
  })

  test("when the message about a place is lost, then the next beat tells", function* ({ setDeaf }) {
    const first = yield* enter("1")
    const second = yield* Effect.forkChild(enter("2"))
    yield* Effect.yieldNow
    setDeaf(true)
    yield* first.close
    yield* Effect.yieldNow
    assert.isUndefined(second.pollUnsafe())
    setDeaf(false)
    yield* TestClock.adjust(beatMs)
    yield* (yield* Fiber.join(second)).close
  })

  test("when the store goes away, then whoever waits is refused with 503 and whoever has a place keeps it", function* ({
    memory,
    setDown
  }) {
    const first = yield* enter("1")
    const second = yield* Effect.forkChild(Effect.flip(enter("2")))
    yield* Effect.yieldNow
    setDown(true)
    yield* TestClock.adjust(beatMs)
    assert.instanceOf(yield* Fiber.join(second), Unavailable)
    assert.instanceOf(yield* Effect.flip(enter("3")), Unavailable)
    // The store does not hear that it is over; the beats that follow tell it.
    yield* first.close
    setDown(false)
    yield* TestClock.adjust(3 * beatMs)
    assert.deepStrictEqual([memory.scheduler(0).running, memory.scheduler(0).waiting], [0, 0])
  })

  test("when the store loses everything, then those who have places keep them and the line forms anew", function* ({
    memory
  }) {
    const first = yield* enter("1")
    const second = yield* Effect.forkChild(enter("2"))
    yield* TestClock.adjust("1 second")
    memory.clear()
    const third = yield* Effect.forkChild(enter("3"))
    yield* TestClock.adjust("10 seconds")
    assert.isUndefined(second.pollUnsafe())
    assert.isUndefined(third.pollUnsafe())
    yield* first.close
    yield* (yield* Fiber.join(second)).close
    yield* (yield* Fiber.join(third)).close
  })

  test("when the store loses everything, then it learns what was loaded, and the next goes as soon as it gives places", function* ({
    memory
  }) {
    const first = yield* enter("1")
    const second = yield* Effect.forkChild(enter("2"))
    yield* TestClock.adjust("1 second")
    memory.clear()
    yield* first.close
    yield* TestClock.adjust(allReportedMs - 1)
    assert.isUndefined(second.pollUnsafe())
    assert.deepStrictEqual(
      (yield* FairQueue).status().models.map(({ resident, running }) => [resident, running]),
      [[true, 0]]
    )
    // The beat of the whole second is later.
    yield* TestClock.adjust("10 millis")
    assert.isDefined(second.pollUnsafe())
  })

  test("when the store loses everything while nobody asks, then a later request waits for nothing", function* ({
    memory
  }) {
    yield* (yield* enter("1")).close
    memory.clear()
    yield* TestClock.adjust(beatMs + defaultGraceMs)
    assert.strictEqual((yield* enter("2")).queuedMs, 0)
  })
})
