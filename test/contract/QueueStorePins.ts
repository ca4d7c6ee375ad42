/** What both twins of the QueueStore promise of pinned models. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import { type Beat, Granted, pinTimes, QueueStore } from "../../src/gates/queue/QueueStore.ts"
import type { Steps } from "../support/testWith.ts"
import { graceMs, grantedIn, Replicas, ticket } from "./QueueStore.ts"

type Store = QueueStore["Service"]

const two = { places: 4, depth: 64, maxLoadedModels: 2, turnMaxMs: 30_000 }
const one = { ...two, maxLoadedModels: 1 }

const pinned = (...names: ReadonlyArray<string>) => ({ names, loading: undefined, loaded: undefined })
/** A replica that names its pins and no requests. */
const tell = (store: Store, pins = pinned("p"), bounds = two) => store.beat([], [], bounds, undefined, pins)

const residentOf = ({ models }: Beat) =>
  models
    .filter(({ resident }) => resident)
    .map(({ name }) => name)
    .sort()

/** A request of the model comes, loads it and ends. */
const use = Effect.fnUntraced(function* (store: Store, model: string, bounds = two) {
  const id = `use ${model}`
  if (!((yield* store.enter(ticket(id, { model, tenant: model }), bounds)) instanceof Granted)) {
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(grantedIn(yield* store.beat([], [id], bounds)), [id], `${model} goes`)
  }
  yield* store.end(id, 100, bounds, 3000)
})

export const pinSuite = (name: string, layer: () => Layer.Layer<Replicas>): void => {
  const test = (behaviour: string, steps: Steps<never, [a: Store, b: Store]>) =>
    it.effect(behaviour, () =>
      Effect.gen(function* () {
        const replicas = yield* Replicas
        const [a, b] = [yield* replicas.of("a"), yield* replicas.of("b")]
        yield* a.beat([], [], two)
        yield* TestClock.adjust(graceMs)
        yield* Effect.gen(() => steps(a, b))
      }).pipe(Effect.scoped, Effect.provide(layer()))
    )

  describe(`pins: ${name}`, () => {
    test("when a model is pinned, then the others share the rest of the room, and it stays", function* (a) {
      yield* tell(a)
      yield* a.beat([], [], two, undefined, { ...pinned("p"), loaded: "p" })
      for (const model of ["x", "y", "x", "y"]) {
        yield* use(a, model)
        yield* TestClock.adjust("20 seconds")
        assert.deepStrictEqual(residentOf(yield* tell(a)), ["p", model])
      }
      // It was not used for longer than the others, and is busy no longer than they are.
      yield* a.enter(ticket("y busy", { model: "y" }), two)
      yield* a.enter(ticket("x waits", { model: "x", tenant: "other" }), two)
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(grantedIn(yield* a.beat(["y busy"], ["x waits"], two)), [], "y is busy")
    })

    test("when a pinned model is not loaded and no other must leave, then one replica is asked to load it, and the other is not", function* (a, b) {
      const asked = yield* tell(a)
      assert.strictEqual(asked.load, "p")
      assert.deepStrictEqual(
        asked.models.map(({ name, pinned: isPinned }) => [name, isPinned]),
        [["p", true]]
      )
      assert.isUndefined((yield* tell(b)).load)
      assert.isUndefined((yield* tell(b, pinned("p", "q"))).load, "one at a time")
      assert.isUndefined((yield* a.beat([], [], two, undefined, { ...pinned("p", "q"), loading: "p" })).load)
      yield* TestClock.adjust("20 seconds")
      const over = yield* a.beat([], [], two, undefined, { ...pinned("p", "q"), loaded: "p" })
      assert.strictEqual(over.load, "q")
      assert.deepStrictEqual(yield* b.enter(ticket("1", { model: "p" }), two), new Granted({ loaded: true }))
    })

    test("when a load fails or its replica dies, then it is tried again after a pause that grows", function* (a, b) {
      const pauses: Array<number> = []
      /** Until a replica is asked, seconds. */
      const untilAsked = Effect.fnUntraced(function* (store: Store) {
        for (let s = 0; s < 700; s += 1) {
          const { load, models } = yield* tell(store)
          if (load === "p") return s
          assert.isFalse(models[0]?.resident, "it failed")
          yield* TestClock.adjust("1 second")
        }
        return assert.fail("nobody was asked")
      })
      // The next beat of the replica no longer says that it loads.
      for (let i = 0; i < 8; i++) pauses.push(yield* untilAsked(a))
      assert.deepStrictEqual(pauses, [0, 30, 60, 120, 240, 480, 600, 600])
      assert.isUndefined((yield* tell(b)).load, "it loads")
      yield* TestClock.adjust(pinTimes.mostMs)
      assert.strictEqual(yield* untilAsked(b), 0, "it is dead")
    })

    test("when others are in the way of a pinned model that is not loaded, then they leave for it once they were idle for a while", function* (a) {
      for (const model of ["x", "y"]) yield* use(a, model)
      yield* a.enter(ticket("x busy", { model: "x" }), two)
      yield* TestClock.adjust(pinTimes.idleMs - 5000)
      assert.isUndefined((yield* a.beat(["x busy"], [], two, undefined, pinned("p"))).load, "not yet idle")
      yield* TestClock.adjust("6 seconds")
      const asked = yield* a.beat(["x busy"], [], two, undefined, pinned("p"))
      assert.strictEqual(asked.load, "p")
      assert.deepStrictEqual(residentOf(asked), ["p", "x"])
    })

    test("when all room is pinned, then an unpinned model is served all the same, and the pinned one comes back when it is idle", function* (a) {
      yield* tell(a, pinned("p"), one)
      yield* a.beat([], [], one, undefined, { ...pinned("p"), loaded: "p" })
      yield* use(a, "p", one)
      yield* TestClock.adjust("1 minute")
      yield* use(a, "x", one)
      const gone = yield* tell(a, pinned("p", "q"), one)
      assert.deepStrictEqual([residentOf(gone), gone.load], [["x"], undefined])
      yield* TestClock.adjust(pinTimes.idleMs)
      assert.strictEqual((yield* tell(a, pinned("p", "q"), one)).load, "p")
      yield* a.beat([], [], one, undefined, { ...pinned("p", "q"), loaded: "p" })
      yield* TestClock.adjust(pinTimes.mostMs)
      assert.isUndefined(
        (yield* tell(a, pinned("p", "q"), one)).load,
        "a pinned one does not leave for another"
      )
    })

    test("when nobody uses a pinned model, then the server is told to keep it, with the window that it has", function* (a) {
      yield* use(a, "p 4096")
      assert.isUndefined((yield* tell(a)).load)
      for (let round = 0; round < 3; round++) {
        yield* TestClock.adjust(pinTimes.renewMs - 1000)
        assert.isUndefined((yield* tell(a)).load)
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* tell(a)).load, "p 4096")
        yield* a.beat([], [], two, undefined, { ...pinned("p"), loaded: "p 4096" })
      }
      assert.isUndefined((yield* tell(a, pinned())).load, "it is no longer pinned")
    })

    for (const [pin, paid] of [
      ["p", false],
      ["another", true]
    ] as const)
      test(`when ${paid ? "another" : "a pinned"} model is loaded for a request, then ${paid ? "its tenant pays" : "nobody pays"} for that in the queue`, function* (a) {
        const single = { ...one, places: 1 }
        yield* tell(a, pinned(pin), single)
        yield* use(a, "x", single)
        yield* a.enter(ticket("x1", { tenant: "x", model: "x" }), single)
        const asks = ["asks 1", "asks 2"]
        for (const id of asks) yield* a.enter(ticket(id, { tenant: "asks", model: "p" }), single)
        yield* TestClock.adjust("10 seconds")
        yield* a.end("x1", 100, single, 20)
        yield* TestClock.adjust("10 seconds")
        assert.deepStrictEqual(grantedIn(yield* a.beat([], asks, single)), ["asks 1"])
        const news = ["new 1", "new 2"]
        for (const id of news) yield* a.enter(ticket(id, { tenant: "new", model: "p" }), single)
        yield* a.end("asks 1", 100, single, 20)
        // It comes for the first time.
        assert.deepStrictEqual(grantedIn(yield* a.beat([], ["asks 2", ...news], single)), ["new 1"])
        yield* a.end("new 1", 100, single, 20)
        const granted = grantedIn(yield* a.beat([], ["asks 2", "new 2"], single))
        assert.deepStrictEqual(granted, [paid ? "new 2" : "asks 2"])
      })
  })
}
