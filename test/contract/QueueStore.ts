/** What both twins of the QueueStore promise, by example; `QueueStoreProperty.ts` compares them with a model. */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, type Layer, type Scope } from "effect"
import { TestClock } from "effect/testing"
import {
  type Beat,
  Full,
  Granted,
  maxIdleKeys,
  QueueStore,
  type Ticket,
  Waiting
} from "../../src/gates/queue/QueueStore.ts"
import { type Steps, testWith } from "../support/testWith.ts"

export const leaseS = 30
export const graceMs = 2500
export const batchEveryMs = 600_000

/** Several replicas on one store, and the way to make the store forget everything. */
export class Replicas extends Context.Service<
  Replicas,
  {
    readonly of: (name: string) => Effect.Effect<QueueStore["Service"], never, Scope.Scope>
    readonly clear: Effect.Effect<void>
    /** waits until messages to a replica have arrived, as `holds` says */
    readonly delivered: (holds: () => boolean) => Effect.Effect<void>
  }
>()("test/Replicas") {}

export const ticket = (id: string, more: Partial<Ticket> = {}): Ticket => ({
  id,
  tenant: "t",
  key: "k",
  model: "m",
  weight: 1,
  priority: "interactive",
  cost: 100,
  ...more
})

const bounds = { places: 2, depth: 8 }

/** Which requests a beat says have a place. */
export const grantedIn = ({ messages }: Beat): ReadonlyArray<string> =>
  messages.flatMap(({ id, retryAfterS }) => (retryAfterS === undefined ? [id] : []))
const displacedIn = ({ messages }: Beat) => messages.filter(({ retryAfterS }) => retryAfterS !== undefined)
const toldBy = (beat: Beat) => ({
  displaced: displacedIn(beat),
  granted: grantedIn(beat),
  unknown: beat.unknown
})

export const suite = (name: string, layer: () => Layer.Layer<Replicas>): void => {
  const test = (
    behaviour: string,
    steps: Steps<Replicas, [a: QueueStore["Service"], b: QueueStore["Service"]]>
  ) =>
    testWith(it.effect, layer())(behaviour, function* () {
      const replicas = yield* Replicas
      const [a, b] = [yield* replicas.of("a"), yield* replicas.of("b")]
      // A store without state may have lost it: the tests begin after that.
      yield* a.beat([], [], bounds)
      yield* TestClock.adjust(graceMs)
      yield* Effect.gen(() => steps(a, b))
    })

  describe(name, () => {
    test("when a request ends on one replica, then the next one is told on its own", function* (a, b) {
      const told: Array<string> = []
      yield* b.onMessage(({ id }) => Effect.sync(() => void told.push(`b ${id}`)))
      yield* a.onMessage(({ id }) => Effect.sync(() => void told.push(`a ${id}`)))
      for (const id of ["1", "2"]) yield* a.enter(ticket(id), bounds)
      yield* b.enter(ticket("3"), bounds)
      yield* a.enter(ticket("4"), bounds)
      yield* a.end("1", 100, bounds)
      yield* (yield* Replicas).delivered(() => told.length > 0)
      assert.deepStrictEqual(told, ["b 3"])
      assert.deepStrictEqual(toldBy(yield* b.beat([], ["3"], bounds)), {
        granted: ["3"],
        unknown: [],
        displaced: []
      })
      assert.instanceOf(yield* b.enter(ticket("3"), bounds), Granted)
    })

    test("when one replica left a full queue, then the next request of another waits, and the one after it is refused", function* (a, b) {
      const full = { places: 1, depth: 1 }
      assert.instanceOf(yield* b.enter(ticket("runs"), full), Granted)
      for (const i of [1, 2, 3]) {
        assert.instanceOf(yield* b.enter(ticket(`b${i}`), full), Waiting)
        assert.instanceOf(yield* a.enter(ticket(`refused${i}`), full), Full)
        yield* b.leave(`b${i}`, full)
        assert.instanceOf(yield* a.enter(ticket(`a${i}`), full), Waiting)
        assert.instanceOf(yield* b.enter(ticket(`late${i}`), full), Full)
        yield* a.leave(`a${i}`, full)
      }
    })

    test("when a thousand users of a key came after one, then what it used is forgotten: names that are made up do not fill the store", function* (a) {
      const one = { places: 1, depth: 8 }
      const use = Effect.fnUntraced(function* (key: string, tokens: number) {
        assert.instanceOf(yield* a.enter(ticket(key, { key }), one), Granted)
        yield* a.end(key, tokens, one)
      })
      /** Of two that wait, which one goes first. */
      const firstOf = Effect.fnUntraced(function* (...keys: readonly [string, string]) {
        yield* a.enter(ticket("busy", { key: "busy" }), one)
        const ids = keys.map((key) => `${key} waits`)
        for (const key of keys) yield* a.enter(ticket(`${key} waits`, { key }), one)
        yield* a.end("busy", 100, one)
        const granted = grantedIn(yield* a.beat([], ids, one))
        for (const id of ids) if (!granted.includes(id)) yield* a.leave(id, one)
        for (const id of granted) yield* a.end(id, 100, one)
        return granted
      })
      yield* use("old", 5000)
      assert.deepStrictEqual(yield* firstOf("old", "new"), ["new waits"])
      for (let i = 0; i <= maxIdleKeys; i++) yield* use(`user ${i}`, 9000)
      assert.deepStrictEqual(yield* firstOf("old", "newer"), ["old waits"])
    })

    test("when as many wait as may, then the next is refused, with a Retry-After from the rate of ends", function* (a) {
      const small = { places: 1, depth: 2 }
      for (let i = 0; i < 60; i++) {
        yield* a.enter(ticket(`e${i}`), small)
        // The first twenty were slower: only the last ones count.
        yield* TestClock.adjust(i < 20 ? "9 seconds" : "1500 millis")
        yield* a.end(`e${i}`, 100, small)
        yield* a.beat([], [], small)
      }
      for (const id of ["1", "2", "3"]) assert.notInstanceOf(yield* a.enter(ticket(id), small), Full)
      const refused = yield* a.enter(ticket("4"), small)
      assert.instanceOf(refused, Full)
      // Two wait, and it would be the third: 4.5 s.
      if (refused instanceof Full) assert.closeTo(refused.retryAfterS, 5, 2)
      // Nothing happens for an hour, and the server is no slower for that.
      for (const id of ["1", "2", "3"]) yield* a.leave(id, small)
      yield* TestClock.adjust("1 hour")
      for (const id of ["5", "6", "7"]) yield* a.enter(ticket(id), small)
      const later = yield* a.enter(ticket("8"), small)
      assert.deepStrictEqual(later, refused)
      for (const id of ["5", "6", "7"]) yield* a.leave(id, small)
      for (const id of ["1", "2", "3"]) yield* a.enter(ticket(id), small)
      // One that may not wait may still go at once.
      const none = { places: 2, depth: 0 }
      for (const id of ["2", "3"]) yield* a.leave(id, none)
      assert.instanceOf(yield* a.enter(ticket("6"), none), Granted)
      assert.instanceOf(yield* a.enter(ticket("7"), none), Full)
    })

    test("when one tenant fills the queue, then another's request displaces the newest one, which is told", function* (a, b) {
      const small = { places: 1, depth: 3 }
      const told: Array<string> = []
      yield* b.onMessage(({ id, retryAfterS }) => Effect.sync(() => void told.push(`${id} ${retryAfterS}`)))
      for (const id of ["1", "2", "3", "4"]) yield* b.enter(ticket(id, { tenant: "many" }), small)
      assert.instanceOf(yield* b.enter(ticket("5", { tenant: "many" }), small), Full)
      assert.instanceOf(yield* a.enter(ticket("few", { tenant: "few" }), small), Waiting)
      yield* (yield* Replicas).delivered(() => told.length > 0)
      // Three wait, and it would be the fourth: two seconds each.
      assert.deepStrictEqual(told, ["4 8"])
      const beat = yield* b.beat(["1"], ["2", "3", "4"], small)
      assert.deepStrictEqual(toldBy(beat), {
        granted: [],
        unknown: [],
        displaced: [{ id: "4", retryAfterS: 8 }]
      })
      assert.deepStrictEqual(displacedIn(yield* b.beat(["1"], ["2", "3"], small)), [])
      assert.deepStrictEqual((yield* b.beat(["1"], ["2", "3", "4"], small)).unknown, ["4"], "forgotten since")
      // Two against one: nobody has too many now.
      assert.instanceOf(yield* a.enter(ticket("few2", { tenant: "few" }), small), Full)
      yield* b.end("1", 100, small)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["few"], small)), ["few"])
    })

    test("when one key fills the queue, then another key of its tenant finds room", function* (a) {
      const small = { places: 1, depth: 3 }
      for (const id of ["1", "2", "3", "4"]) yield* a.enter(ticket(id, { key: "many" }), small)
      assert.instanceOf(yield* a.enter(ticket("5", { key: "many" }), small), Full)
      assert.instanceOf(yield* a.enter(ticket("few", { key: "few" }), small), Waiting)
      const displaced = displacedIn(yield* a.beat(["1"], ["2", "3", "4", "few"], small))
      assert.deepStrictEqual(
        displaced.map(({ id }) => id),
        ["4"]
      )
    })

    test("when batch requests fill the queue, then interactive ones displace them, and never the other way", function* (a) {
      const small = { places: 1, depth: 2 }
      for (const id of ["1", "2", "3"]) yield* a.enter(ticket(id, { priority: "batch" }), small)
      for (const id of ["i1", "i2"]) assert.instanceOf(yield* a.enter(ticket(id), small), Waiting)
      const displaced = displacedIn(yield* a.beat(["1"], ["2", "3", "i1", "i2"], small))
      assert.deepStrictEqual(displaced.map(({ id }) => id).sort(), ["2", "3"])
      assert.instanceOf(yield* a.enter(ticket("4", { priority: "batch", tenant: "u" }), small), Full)
    })

    test("when one key of a tenant has many in line, then another key's only request goes next", function* (a) {
      for (const id of ["1", "2", "3", "4", "5"]) yield* a.enter(ticket(id, { key: "many" }), bounds)
      yield* a.enter(ticket("one", { key: "few" }), bounds)
      yield* a.end("1", 100, bounds)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["3", "4", "5", "one"], bounds)), ["one"])
    })

    test("when a request used more than was expected, then its key's next one waits longer", function* (a) {
      const one = { places: 1, depth: 8 }
      for (const id of ["x1", "y1", "x2", "y2"]) {
        yield* a.enter(ticket(id, { key: id.slice(0, 1), cost: id === "x1" ? 50 : 100 }), one)
      }
      yield* a.end("x1", 1000, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["y1", "x2", "y2"], one)), ["y1"])
      yield* a.end("y1", 100, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["x2", "y2"], one)), ["y2"])
    })

    test("when a batch request has a place for ten minutes, then no other one goes before interactive ones", function* (a) {
      yield* a.enter(ticket("b0", { priority: "batch" }), bounds)
      yield* a.enter(ticket("i0"), bounds)
      yield* a.enter(ticket("b1", { priority: "batch" }), bounds)
      yield* a.enter(ticket("i1"), bounds)
      for (let s = 0; s < batchEveryMs; s += 20_000) {
        yield* TestClock.adjust("20 seconds")
        yield* a.beat(["b0", "i0"], ["b1", "i1"], bounds)
      }
      yield* a.end("i0", 1, bounds)
      assert.deepStrictEqual(grantedIn(yield* a.beat(["b0"], ["b1", "i1"], bounds)), ["i1"])
    })

    test("when a request leaves the line, then it cost nothing, and a place it got meanwhile goes to the next", function* (a) {
      for (const id of ["1", "2"]) yield* a.enter(ticket(id), bounds)
      for (const id of ["3", "4"]) yield* a.enter(ticket(id), bounds)
      yield* a.end("1", 100, bounds)
      yield* a.leave("3", bounds)
      assert.deepStrictEqual(grantedIn(yield* a.beat(["2"], ["4"], bounds)), ["4"])
      assert.deepStrictEqual((yield* a.beat(["2", "4"], ["3"], bounds)).unknown, ["3"])
    })

    test("when interactive requests wait, then batch ones go only once in ten minutes", function* (a) {
      const one = { places: 1, depth: 64 }
      yield* a.enter(ticket("b0", { priority: "batch" }), one)
      for (const id of ["i1", "i2", "i3"]) yield* a.enter(ticket(id), one)
      yield* a.enter(ticket("b1", { priority: "batch", tenant: "u" }), one)
      yield* a.end("b0", 1, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["i1", "i2", "i3", "b1"], one)), ["i1"])
      for (let s = 0; s < batchEveryMs; s += 20_000) {
        yield* TestClock.adjust("20 seconds")
        yield* a.beat(["i1"], ["i2", "i3", "b1"], one)
      }
      yield* a.end("i1", 1, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["i2", "i3", "b1"], one)), ["b1"])
      yield* a.end("b1", 1, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["i2", "i3"], one)), ["i2"])
    })

    test("when a replica dies, then its places and its places in line come back with its lease, not before", function* (a, b) {
      for (const id of ["1", "2"]) yield* b.enter(ticket(id), bounds)
      yield* b.enter(ticket("3"), bounds)
      yield* a.enter(ticket("4"), bounds)
      yield* TestClock.adjust((leaseS - 1) * 1000)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["4"], bounds)), [])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["4"], bounds)), ["4"])
      assert.instanceOf(yield* a.enter(ticket("5"), bounds), Granted)
    })

    test("when a replica no longer names a request, then it is forgotten one beat later", function* (a) {
      const one = { places: 1, depth: 8 }
      yield* a.enter(ticket("lost"), one)
      yield* a.enter(ticket("next"), one)
      // It may have come while this beat was on its way.
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["next"], one)), [])
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["next"], one)), ["next"])
    })

    test("when the store lost everything, then nobody new goes before those who have places are named again", function* (a, b) {
      yield* a.enter(ticket("1"), bounds)
      yield* b.enter(ticket("2"), bounds)
      const waiting = yield* a.enter(ticket("3"), bounds)
      assert.instanceOf(waiting, Waiting)
      if (!(waiting instanceof Waiting)) return
      yield* (yield* Replicas).clear
      assert.instanceOf(yield* b.enter(ticket("new"), bounds), Waiting)
      assert.deepStrictEqual(toldBy(yield* a.beat(["1"], ["3"], bounds)), {
        granted: [],
        unknown: ["1", "3"],
        displaced: []
      })
      yield* a.restore(
        [
          { ticket: ticket("1"), order: undefined },
          { ticket: ticket("3"), order: waiting.order }
        ],
        bounds
      )
      yield* b.restore([{ ticket: ticket("2"), order: undefined }], bounds)
      yield* TestClock.adjust(graceMs)
      assert.deepStrictEqual(toldBy(yield* a.beat(["1"], ["3"], bounds)), {
        granted: [],
        unknown: [],
        displaced: []
      })
      yield* b.end("2", 100, bounds)
      assert.deepStrictEqual(
        grantedIn(yield* a.beat(["1"], ["3"], bounds)),
        ["3"],
        "the older one goes first"
      )
    })

    const one = { places: 2, depth: 64, maxLoadedModels: 1, turnMaxMs: 30_000 }
    /** Tells the store how long a load takes: the average of all loads so far. */
    const loadOf = Effect.fnUntraced(function* (store: QueueStore["Service"], ms: number) {
      for (const model of ["a", "b", "a", "b"]) {
        yield* store.enter(ticket(`${model} first`, { tenant: "before", model }), one)
        yield* TestClock.adjust(ms)
        yield* store.end(`${model} first`, 100, one, ms)
        yield* TestClock.adjust(ms)
      }
    })

    test("when a model is loaded, then its requests go first until they are a load ahead, and the swap waits for those that run", function* (a, b) {
      yield* loadOf(a, 8000)
      const names: Array<string> = []
      for (let i = 0; i < 40; i++) {
        names.push(`b${i}`)
        yield* a.enter(ticket(`b${i}`, { tenant: "flood", model: "b" }), one)
      }
      assert.instanceOf(yield* b.enter(ticket("a0", { tenant: "few", model: "a" }), one), Waiting)
      let running = ["b0", "b1"]
      let turns = 0
      while (running.length > 0 && turns < 60) {
        turns += 1
        yield* TestClock.adjust(1000)
        const [first = ""] = running
        yield* a.end(first, 100, one, 0)
        names.splice(names.indexOf(first), 1)
        const waiting = names.filter((name) => !running.includes(name))
        const granted = grantedIn(yield* a.beat(running.slice(1), waiting, one))
        running = [...running.slice(1), ...granted]
      }
      // A request takes two seconds, and there are two places: a load of 8 s is worth eight requests and more.
      assert.isAtLeast(turns, 8)
      assert.isAtMost(turns, 30)
      assert.deepStrictEqual(
        grantedIn(yield* b.beat([], ["a0"], one)),
        ["a0"],
        "it goes when the last one is done"
      )
      const { models } = yield* b.beat(["a0"], [], one)
      assert.deepStrictEqual(
        models.map(({ name, resident, running: places }) => [name, resident, places]).sort(),
        [
          ["a", true, 1],
          ["b", false, 0]
        ]
      )
    })

    test("when the time of a turn is over, then the other model comes, whatever its share is", function* (a) {
      yield* loadOf(a, 8000)
      yield* a.enter(ticket("b0", { key: "other", model: "b" }), one)
      yield* a.enter(ticket("a0", { model: "a" }), one)
      assert.instanceOf(
        yield* a.enter(ticket("b1", { key: "other", model: "b" }), one),
        Granted,
        "the turn of its model"
      )
      for (let s = 0; s < 40; s += 20) {
        yield* TestClock.adjust("20 seconds")
        yield* a.beat(["b0", "b1"], ["a0"], one)
      }
      assert.instanceOf(yield* a.enter(ticket("b2", { key: "other", model: "b" }), one), Waiting)
      yield* a.end("b0", 100, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat(["b1"], ["a0", "b2"], one)), [], "a place is free")
      yield* a.end("b1", 100, one)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["a0", "b2"], one)), ["a0"])
    })

    test("when the store lost everything in a turn, then that begins anew for what a replica says was loaded", function* (a, b) {
      yield* loadOf(a, 8000)
      yield* a.enter(ticket("b0", { tenant: "flood", model: "b" }), one)
      yield* (yield* Replicas).clear
      const { changesInMs } = yield* b.beat([], [], one, { names: ["b"], agoMs: 900 })
      assert.isAtMost(changesInMs, graceMs)
      const held = [
        { ticket: ticket("a0", { tenant: "few", model: "a" }), order: 1 },
        { ticket: ticket("b1", { tenant: "flood", model: "b" }), order: 2 }
      ]
      yield* a.restore(held, one)
      yield* TestClock.adjust(graceMs)
      assert.deepStrictEqual(grantedIn(yield* a.beat([], ["a0", "b1"], one)), ["b1"])
    })

    test("when a replica is silent, then the others learn when its lease ends", function* (a, b) {
      yield* b.beat([], [], one)
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual((yield* a.beat([], [], one)).changesInMs, leaseS * 1000 - 2000)
      yield* TestClock.adjust((leaseS - 2) * 1000)
      assert.strictEqual((yield* a.beat([], [], one)).changesInMs, leaseS * 1000, "its own")
    })

    test("when a request waits for a swap, then others pass it only on places that it cannot use", function* (a) {
      const three = { places: 3, depth: 64, maxLoadedModels: 2, turnMaxMs: 1 }
      for (const model of ["a", "b"]) yield* a.enter(ticket(`${model}0`, { model }), three)
      yield* TestClock.adjust("10 seconds")
      assert.instanceOf(yield* a.enter(ticket("c0", { model: "c" }), three), Waiting)
      yield* TestClock.adjust("2 millis")
      assert.instanceOf(yield* a.enter(ticket("b1", { model: "b" }), three), Waiting, "the place is for c")
      yield* a.end("b0", 100, three)
      assert.deepStrictEqual(
        grantedIn(yield* a.beat(["a0"], ["c0", "b1"], three)),
        ["b1"],
        "one more is free"
      )
      yield* a.end("a0", 100, three)
      assert.deepStrictEqual(grantedIn(yield* a.beat(["b1"], ["c0"], three)), ["c0"], "nobody uses a")
    })

    test("when the server had two models at the same time, then they fit together until one is found gone", function* (a) {
      const learning = { places: 2, depth: 64 }
      yield* a.enter(ticket("a0", { model: "a" }), learning)
      assert.instanceOf(yield* a.enter(ticket("b0", { model: "b" }), learning), Waiting)
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(
        grantedIn(yield* a.beat(["a0"], ["b0"], learning, { names: ["a", "b"], agoMs: 0 })),
        ["b0"]
      )
      assert.deepStrictEqual(
        yield* a.enter(ticket("b0", { model: "b" }), learning),
        new Granted({ loaded: true })
      )
      assert.strictEqual(yield* a.end("a0", 100, learning, 20), 0, "it was loaded")
      yield* a.end("b0", 100, learning, 20)
      assert.deepStrictEqual(
        yield* a.enter(ticket("a1", { model: "a" }), learning),
        new Granted({ loaded: true })
      )
      assert.strictEqual(yield* a.end("a1", 100, learning, 3000), 3000, "it was gone")
      yield* a.enter(ticket("a2", { model: "a" }), learning)
      assert.instanceOf(yield* a.enter(ticket("c", { model: "c" }), learning), Waiting)
    })

    test("when the server lists ever new models, then what fits together is learned anew before it is too much", function* (a) {
      const learning = { places: 2, depth: 64 }
      const list = (names: ReadonlyArray<string>) => a.beat([], [], learning, { names, agoMs: 0 })
      yield* list(["a", "b"])
      for (const round of ["x", "y"]) yield* list(Array.from({ length: 16 }, (_, i) => `${round}${i}`))
      yield* list([])
      yield* TestClock.adjust("1 second")
      yield* a.enter(ticket("a0", { model: "a" }), learning)
      assert.instanceOf(yield* a.enter(ticket("b0", { model: "b" }), learning), Waiting)
    })

    test("when the server still lists a model that leaves, then that has no room; when one is found gone, then the others are", function* (a) {
      const learning = { places: 2, depth: 64, turnMaxMs: 1 }
      yield* a.enter(ticket("a0", { model: "a" }), learning)
      yield* a.end("a0", 100, learning, 3000)
      yield* TestClock.adjust("10 seconds")
      yield* a.enter(ticket("b0", { model: "b" }), learning)
      yield* TestClock.adjust("1 second")
      const { models } = yield* a.beat(["b0"], [], learning, { names: ["a"], agoMs: 10 })
      assert.deepStrictEqual(
        models.map(({ name }) => name),
        ["b"]
      )
      yield* a.end("b0", 100, learning, 3000)
      yield* a.beat([], [], learning, { names: ["a", "b"], agoMs: 0 })
      for (const model of ["a", "b"]) yield* a.enter(ticket(`${model}1`, { model }), learning)
      yield* a.end("a1", 100, learning, 3000)
      yield* a.end("b1", 100, learning, 3000)
      assert.deepStrictEqual(
        (yield* a.beat([], [], learning)).models.map(({ name }) => name),
        ["b"]
      )
    })

    test("when several requests wait for one load, then it is counted once; a model that the server lost is loaded again", function* (a) {
      for (const id of ["1", "2"])
        assert.deepStrictEqual(yield* a.enter(ticket(id), one), new Granted({ loaded: false }))
      assert.strictEqual(yield* a.end("1", 100, one, 4000), 4000)
      assert.strictEqual(yield* a.end("2", 100, one, 4000), 0)
      assert.deepStrictEqual(yield* a.enter(ticket("3"), one), new Granted({ loaded: true }))
      yield* a.end("3", 100, one, 4)
      yield* TestClock.adjust("10 seconds")
      yield* a.beat([], [], one, { names: [], agoMs: 20_000 })
      assert.deepStrictEqual(yield* a.enter(ticket("4"), one), new Granted({ loaded: true }), "an old list")
      yield* a.end("4", 100, one, 4)
      yield* TestClock.adjust("10 seconds")
      yield* a.beat([], [], one, { names: [], agoMs: 100 })
      assert.deepStrictEqual(yield* a.enter(ticket("5"), one), new Granted({ loaded: false }))
    })

    test("when a model is asked for with another window, then that is another load, whatever fits", function* (a) {
      const many = { ...one, maxLoadedModels: 9 }
      for (const model of ["a", "b"])
        assert.instanceOf(yield* a.enter(ticket(model, { model }), { ...many, places: 4 }), Granted)
      assert.instanceOf(yield* a.enter(ticket("a2", { model: "a 2048" }), { ...many, places: 4 }), Waiting)
      yield* a.end("a", 100, { ...many, places: 4 })
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(grantedIn(yield* a.beat(["b"], ["a2"], { ...many, places: 4 })), ["a2"])
    })

    test("when nobody may wait, then a request for a model that has no room yet is refused", function* (a) {
      const none = { ...one, depth: 0 }
      yield* a.enter(ticket("a0", { model: "a" }), none)
      assert.instanceOf(yield* a.enter(ticket("b0", { model: "b" }), none), Full)
      assert.deepStrictEqual((yield* a.beat(["a0"], ["b0"], none)).unknown, ["b0"])
    })
  })
}
