/**
 * Random arrivals, ends, departures, deaths, beats, losses of the store, weights, priorities and bounds, against a naive
 * model that keeps everything in one list and computes each decision anew.
 */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import {
  type Beat,
  Full,
  Granted,
  type Held,
  type QueueStore,
  type Ticket,
  Waiting
} from "../../src/gates/queue/QueueStore.ts"
import { batchEveryMs, graceMs, leaseS, Replicas } from "./QueueStore.ts"
import { QueueModel } from "./QueueModel.ts"

const names = ["a", "b"] as const

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      verb: fc.constant("enter"),
      replica: fc.constantFrom(...names),
      tenant: fc.constantFrom("t1", "t2", "t3"),
      key: fc.constantFrom("k1", "k2"),
      priority: fc.constantFrom("interactive", "interactive", "batch"),
      cost: fc.integer({ min: 1, max: 50 })
    })
  },
  {
    weight: 6,
    arbitrary: fc.record({
      verb: fc.constant("end"),
      which: fc.nat(9),
      used: fc.integer({ min: 0, max: 90 })
    })
  },
  { weight: 2, arbitrary: fc.record({ verb: fc.constant("leave"), which: fc.nat(9) }) },
  { weight: 3, arbitrary: fc.record({ verb: fc.constant("beat"), replica: fc.constantFrom(...names) }) },
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
  order: number | undefined
}

const play = Effect.fnUntraced(function* (
  steps: ReadonlyArray<Step>,
  bounds: { readonly places: number; readonly depth: number }
) {
  const replicas = yield* Replicas
  const stores: Record<"a" | "b", QueueStore["Service"]> = {
    a: yield* replicas.of("a"),
    b: yield* replicas.of("b")
  }
  yield* stores.a.beat([], [], bounds)
  yield* TestClock.adjust(graceMs)
  const model = new QueueModel({ leaseMs: leaseS * 1000, graceMs, batchEveryMs })
  model.beat(yield* Clock.currentTimeMillis, "a", [], bounds)
  /** what the replicas know of their requests */
  const known = new Map<string, Known>()
  let count = 0

  const beat = Effect.fnUntraced(function* (name: "a" | "b") {
    const now = yield* Clock.currentTimeMillis
    const own = [...known].filter(([, { replica }]) => replica === name)
    const running = own.filter(([, { order }]) => order === undefined).map(([id]) => id)
    const waiting = own.filter(([, { order }]) => order !== undefined).map(([id]) => id)
    const answer = yield* stores[name].beat(running, waiting, bounds)
    model.beat(now, name, [...running, ...waiting], bounds)
    assert.deepStrictEqual([...answer.unknown].sort(), model.unknown(name, [...running, ...waiting]))
    const byId = (list: Beat["displaced"]) => list.toSorted((one, two) => (one.id < two.id ? -1 : 1))
    assert.deepStrictEqual(byId(answer.displaced), byId(model.displaced(name)))
    for (const { id } of answer.displaced) known.delete(id)
    assert.deepStrictEqual([...answer.granted].sort(), waiting.filter((id) => model.isRunning(id)).sort())
    for (const id of answer.granted) {
      const entry = known.get(id)
      if (entry !== undefined) entry.order = undefined
    }
    const held: ReadonlyArray<Held> = answer.unknown.flatMap((id) => {
      const entry = known.get(id)
      return entry === undefined ? [] : [{ ticket: entry.ticket, order: entry.order }]
    })
    if (held.length === 0) return
    yield* stores[name].restore(held, bounds)
    model.restore(now, name, held, bounds)
  })

  for (const one of steps) {
    const now = yield* Clock.currentTimeMillis
    switch (one.verb) {
      case "enter": {
        const ticket: Ticket = {
          id: `r${count++}`,
          tenant: one.tenant,
          key: `${one.tenant}-${one.key}`,
          weight: weights[one.tenant] ?? 1,
          priority: one.priority === "batch" ? "batch" : "interactive",
          cost: one.cost
        }
        const answer = yield* stores[one.replica].enter(ticket, bounds)
        const expected = model.enter(now, one.replica, ticket, bounds)
        if (answer instanceof Full) {
          assert.strictEqual(expected, "full")
          assert.strictEqual(answer.retryAfterS, model.retryAfterS(bounds))
        } else {
          assert.strictEqual(answer instanceof Granted ? "granted" : "waiting", expected)
          known.set(ticket.id, {
            replica: one.replica,
            ticket,
            order: answer instanceof Waiting ? answer.order : undefined
          })
          if (answer instanceof Waiting) model.setOrder(ticket.id, answer.order)
        }
        break
      }
      case "end":
      case "leave": {
        const id = [...known.keys()][one.which]
        const entry = id === undefined ? undefined : known.get(id)
        if (id === undefined || entry === undefined) break
        known.delete(id)
        if (one.verb === "end") {
          yield* stores[entry.replica].end(id, one.used, bounds)
          model.end(now, id, one.used, bounds)
        } else {
          const retryAfterS = yield* stores[entry.replica].leave(id, bounds)
          model.leave(now, id, bounds)
          assert.strictEqual(retryAfterS, model.retryAfterS(bounds))
        }
        break
      }
      case "beat":
        yield* beat(one.replica)
        break
      case "die":
        for (const [id, { replica }] of known) if (replica === one.replica) known.delete(id)
        break
      case "clear":
        yield* replicas.clear
        model.clear()
        // The order of new requests begins with the time of the loss, so two losses have two times.
        yield* TestClock.adjust(1)
        break
      case "wait":
        yield* TestClock.adjust(one.ms)
    }
  }
  // Whatever happened: once all is named and ended, and the dead are buried, every place is free again.
  for (const name of names) yield* beat(name)
  for (const [id, { replica }] of known) yield* stores[replica].end(id, 1, bounds)
  yield* TestClock.adjust((leaseS + 5) * 1000)
  for (let i = 0; i < bounds.places; i++) {
    const answer = yield* stores.a.enter(
      { id: `last${i}`, tenant: "t", key: "k", weight: 1, priority: "interactive", cost: 1 },
      { ...bounds, depth: 8 }
    )
    if (i === 0 && answer instanceof Waiting) {
      // The store had just been emptied.
      yield* TestClock.adjust(graceMs)
      assert.deepStrictEqual((yield* stores.a.beat([], [`last${i}`], bounds)).granted, [`last${i}`])
    } else {
      assert.instanceOf(answer, Granted)
    }
  }
})

export const properties = (
  name: string,
  layer: () => Layer.Layer<Replicas>,
  { runs }: { readonly runs: number }
): void => {
  it.effect(
    `when anything happens in any order (${name}), then it decides as the model does, and no place is lost`,
    () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<never>()
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(
              fc.array(step, { maxLength: 80, size: "max" }),
              fc.record({ places: fc.integer({ min: 1, max: 3 }), depth: fc.integer({ min: 0, max: 6 }) }),
              (steps, bounds) =>
                Effect.runPromiseWith(context)(
                  Effect.provide(Effect.scoped(play(steps, bounds)), layer(), { local: true })
                )
            ),
            { numRuns: runs }
          )
        )
      })
  )
}
