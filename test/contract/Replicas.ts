/** What both stores of the processes do alike. */
import { randomUUID } from "node:crypto"
import { assert, it } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { Replicas } from "../../src/replicas/Replicas.ts"

export const suite = (name: string, world: Layer.Layer<Replicas, unknown>): void => {
  it.live(
    `when processes report and one leaves, then the list has the last report of the others: ${name}`,
    () =>
      Effect.gen(function* () {
        const { leave, list, report } = yield* Replicas
        const [one, other] = [
          { id: randomUUID(), host: "a", version: "1.0.0" },
          { id: randomUUID(), host: "b", version: "1.0.1" }
        ]
        yield* report({ ...one, gauges: { models: 1 } })
        yield* report({ ...other, gauges: {} })
        const [before] = (yield* list).rows
        yield* report({ ...one, gauges: { models: 2, age: null, "ready{cache}": 0 } })
        const both = (yield* list).rows
        assert.deepStrictEqual(
          both.map(({ host }) => host),
          ["a", "b"]
        )
        const [first] = both
        assert.deepStrictEqual(
          { ...first, silentS: 0, upS: 0 },
          {
            ...one,
            started: before?.started ?? new Date(0),
            silentS: 0,
            upS: 0,
            gauges: { models: 2, age: null, "ready{cache}": 0 }
          }
        )
        assert.isBelow(both[0]?.silentS ?? Number.NaN, 30)
        yield* leave(other.id)
        yield* leave(other.id)
        assert.deepStrictEqual(
          (yield* list).rows.map(({ id }) => id),
          [one.id]
        )
      }).pipe(Effect.provide(world))
  )
}
