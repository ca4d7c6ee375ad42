/**
 * Random arrivals, ends, departures, deaths, beats, losses of the store, weights, priorities and bounds, on a store and on the
 * twin in memory, which is the definition.
 */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { layerMemoryOf, QueueMemory } from "../../src/gates/queue/memory.ts"
import {
  type Bounds,
  Granted,
  type Held,
  QueueStore,
  type Seen,
  type Ticket,
  Waiting
} from "../../src/gates/queue/QueueStore.ts"
import { batchEveryMs, graceMs, leaseS, Replicas } from "./QueueStore.ts"
import { testWith } from "../support/testWith.ts"

const names = ["a", "b"] as const

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      verb: fc.constant("enter"),
      replica: fc.constantFrom(...names),
      tenant: fc.constantFrom("t1", "t2", "t3"),
      key: fc.constantFrom("k1", "k2"),
      model: fc.constantFrom("m1", "m2", "m2 4096", "m3"),
      priority: fc.constantFrom("interactive", "interactive", "batch"),
      cost: fc.integer({ min: 1, max: 50 })
    })
  },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: fc.constant("end"),
      which: fc.nat(9),
      used: fc.integer({ min: 0, max: 90 }),
      loadMs: fc.constantFrom(undefined, 0, 249, 250, 3000, 12_000)
    })
  },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant("leave"), which: fc.nat(9) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      verb: fc.constant("beat"),
      replica: fc.constantFrom(...names),
      seen: fc.option(
        fc.record({
          names: fc.uniqueArray(fc.constantFrom("m1", "m2", "m3", "other"), { maxLength: 3 }),
          agoMs: fc.constantFrom(0, 1, 1500)
        }),
        { nil: undefined }
      )
    })
  },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant("die"), replica: fc.constantFrom(...names) }) },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant("clear") }) },
  {
    weight: 2,
    arbitrary: fc.record({
      verb: fc.constant("wait"),
      ms: fc.constantFrom(1, 1000, 2500, 10_000, 30_000, 600_000)
    })
  }
)
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never

const weights: Record<string, number> = { t1: 1, t2: 3, t3: 0.5 }

interface Known {
  readonly replica: "a" | "b"
  readonly ticket: Ticket
  waits: boolean
  /** in the order of each store; a number means nothing in the other one */
  readonly orders: { live: number | undefined; twin: number | undefined }
}

type Store = QueueStore["Service"]

const play = Effect.fnUntraced(function* (steps: ReadonlyArray<Step>, bounds: Bounds) {
  const replicas = yield* Replicas
  const memory = new QueueMemory({ leaseS, graceMs, batchEveryMs })
  const twinOf = (name: string) =>
    Effect.map(Layer.build(layerMemoryOf(memory, name)), Context.get(QueueStore))
  const stores = {
    a: { live: yield* replicas.of("a"), twin: yield* twinOf("a") },
    b: { live: yield* replicas.of("b"), twin: yield* twinOf("b") }
  }
  /** what the replicas know of their requests */
  const known = new Map<string, Known>()
  let [count, told] = [0, ""]

  /** Asks both stores. Returns their answers, which `plain` makes equal. */
  const ask = Effect.fnUntraced(function* <A>(
    name: "a" | "b",
    put: (store: Store, kind: "live" | "twin") => Effect.Effect<A, unknown>,
    plain: (answer: A) => unknown
  ) {
    const answers = {
      live: yield* put(stores[name].live, "live"),
      twin: yield* put(stores[name].twin, "twin")
    }
    assert.deepStrictEqual(plain(answers.live), plain(answers.twin), told)
    return answers
  })
  const orderOf = (answer: unknown) => (answer instanceof Waiting ? answer.order : undefined)

  const enter = Effect.fnUntraced(function* (replica: "a" | "b", ticket: Ticket) {
    const { live, twin } = yield* ask(
      replica,
      (store) => store.enter(ticket, bounds),
      (answer) => (answer instanceof Waiting ? "waits" : answer)
    )
    const orders = { live: orderOf(live), twin: orderOf(twin) }
    const waits = live instanceof Waiting
    if (waits || live instanceof Granted) known.set(ticket.id, { replica, ticket, waits, orders })
  })

  const beat = Effect.fnUntraced(function* (name: "a" | "b", seen?: Seen) {
    const own = [...known].filter(([, { replica }]) => replica === name)
    const running = own.filter(([, { waits }]) => !waits).map(([id]) => id)
    const waiting = own.filter(([, { waits }]) => waits).map(([id]) => id)
    const { live } = yield* ask(
      name,
      (store) => store.beat(running, waiting, bounds, seen),
      ({ messages, models, unknown }) => [
        models.toSorted((one, two) => (one.name < two.name ? -1 : 1)),
        messages.map(({ id, loaded, retryAfterS }) => `${id} ${loaded} ${retryAfterS}`).toSorted(),
        unknown.toSorted()
      ]
    )
    for (const { id, retryAfterS } of live.messages) {
      const one = known.get(id)
      if (retryAfterS !== undefined) known.delete(id)
      else if (one !== undefined) one.waits = false
    }
    const lost = live.unknown.flatMap((id) => known.get(id) ?? [])
    if (lost.length === 0) return
    yield* ask(
      name,
      (store, kind) => {
        const held: ReadonlyArray<Held> = lost.map(({ orders, ticket, waits }) => ({
          ticket,
          order: waits ? orders[kind] : undefined
        }))
        return store.restore(held, bounds)
      },
      () => undefined
    )
  })

  // A store without state may have lost it: the test begins after that.
  yield* beat("a")
  yield* TestClock.adjust(graceMs)
  for (const name of names) yield* beat(name)
  for (const [i, one] of steps.entries()) {
    told = `step ${i}: ${JSON.stringify(one)}`
    switch (one.verb) {
      case "enter":
        yield* enter(one.replica, {
          id: `r${count++}`,
          tenant: one.tenant,
          key: `${one.tenant}-${one.key}`,
          weight: weights[one.tenant] ?? 1,
          model: one.model,
          priority: one.priority === "batch" ? "batch" : "interactive",
          cost: one.cost
        })
        break
      case "end":
      case "leave": {
        const [id, entry] = [...known][one.which] ?? []
        if (id === undefined || entry === undefined) break
        known.delete(id)
        if (one.verb === "end")
          yield* ask(entry.replica, (store) => store.end(id, one.used, bounds, one.loadMs), String)
        else yield* ask(entry.replica, (store) => store.leave(id, bounds), String)
        break
      }
      case "beat":
        yield* beat(one.replica, one.seen)
        break
      case "die":
        for (const [id, { replica }] of known) if (replica === one.replica) known.delete(id)
        break
      case "clear":
        yield* replicas.clear
        memory.clear()
        // The order of new requests begins with the time of the loss, so two losses have two times.
        yield* TestClock.adjust(1)
        break
      case "wait":
        yield* TestClock.adjust(one.ms)
    }
  }
  // Whatever happened: once all is named and ended, and the dead are buried, every place is free again.
  told = "at the end"
  for (const name of names) yield* beat(name)
  for (const [id, { replica }] of known) yield* ask(replica, (store) => store.end(id, 1, bounds), String)
  known.clear()
  yield* TestClock.adjust((leaseS + 5) * 1000)
  yield* beat("a")
  yield* TestClock.adjust(graceMs)
  for (let i = 0; i < bounds.places; i++) {
    yield* enter("a", {
      id: `last${i}`,
      tenant: "t",
      key: "k",
      model: "m1",
      weight: 1,
      priority: "interactive",
      cost: 1
    })
    assert.isFalse(known.get(`last${i}`)?.waits, "a place is free")
  }
})

export const properties = (
  name: string,
  layer: () => Layer.Layer<Replicas>,
  { runs }: { readonly runs: number }
): void => {
  testWith(it.effect)(
    `when anything happens in any order (${name}), then it decides as the twin does, and no place is lost`,
    function* () {
      // Not the start of the clock: what was never used was used long ago.
      yield* TestClock.adjust("30 days")
      const context = yield* Effect.context<never>()
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(
            fc.array(step, { maxLength: 80, size: "max" }),
            fc.record({ places: fc.integer({ min: 1, max: 3 }), depth: fc.integer({ min: 0, max: 6 }) }),
            fc.constantFrom({}, { maxLoadedModels: 1 }, { maxLoadedModels: 2, turnMaxMs: 5000 }),
            (steps, places, models) =>
              Effect.runPromiseWith(context)(
                Effect.provide(Effect.scoped(play(steps, { ...places, ...models })), layer(), {
                  local: true
                })
              )
          ),
          { numRuns: runs }
        )
      )
    }
  )
}
