/** What every Meter has to do with slots and holds while they last, and when nobody renews them. */
import { assert, describe } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { ask, atNoon, claimsOf, left, load, noon, refused, reserve, take, Wipe } from "./Meter.ts"

export const leases = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: leases`, () => {
    test("when a lease has ended, then the request is named until it is renewed, settled or cancelled", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ concurrent: 9, tpm: 100, budgets: { day: 1000 } })
      yield* load(claims, { day: 0 })
      const survey = Effect.map(meter.snapshot(claims.account, noon), ({ lapsed, open }) => [open, ...lapsed])
      const grips = yield* Effect.forEach(["a", "b", "c"], (id) => take(claims, ask(id, 20)))
      yield* take(claims, ask("nothing"))
      assert.deepStrictEqual(yield* survey, [4])
      yield* TestClock.adjust("30 seconds")
      // Nothing is held by a slot without tokens: it is gone.
      assert.deepStrictEqual((yield* survey).toSorted(), [0, "a", "b", "c"])
      const [a, b, c] = grips
      if (a === undefined || b === undefined || c === undefined) return yield* Effect.die("not three")
      assert.deepStrictEqual(yield* meter.renew(a, 5, 20), { held: 20, exhausted: false })
      assert.deepStrictEqual((yield* survey).toSorted(), [1, "b", "c"])
      yield* meter.settle(b, 10)
      yield* meter.cancel({ id: c.id, claims })
      assert.deepStrictEqual(yield* survey, [1])
      const { budgets, tokens } = yield* meter.settle(a, 5)
      assert.deepStrictEqual([tokens.remaining, budgets.day?.remaining], [85, 985])
      assert.deepStrictEqual(yield* survey, [0])
    })

    test("when a slot is renewed, then it stays taken", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ concurrent: 1 })
      const a = yield* take(claims, ask("a", 10))
      for (let i = 0; i < 30; i++) {
        yield* TestClock.adjust("20 seconds")
        yield* meter.renew(a, 0, 10)
        assert.strictEqual(refused(yield* reserve(claims, ask(`b${i}`, 1))).by, "concurrency")
      }
      yield* meter.settle(a, 10)
      assert.strictEqual((yield* take(claims, ask("c", 1))).held, 1)
    })

    test("when a request renews, then it takes more while there is more, and else gets none", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ tpm: 1000, budgets: { day: 100 } })
      yield* load(claims, { day: 0 })
      const a = yield* take(claims, ask("a", 30))
      assert.deepStrictEqual(yield* meter.renew(a, 10, 20), { held: 30, exhausted: false })
      assert.deepStrictEqual(yield* meter.renew(a, 20, 80), { held: 80, exhausted: false })
      const b = yield* take(claims, ask("b", 15))
      assert.deepStrictEqual(yield* meter.renew(a, 60, 200), { held: 85, exhausted: true })
      assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 0)
      yield* meter.settle(b, 0)
      assert.deepStrictEqual(yield* meter.renew(a, 85, 200), { held: 100, exhausted: true })
      assert.strictEqual((yield* meter.settle(a, 90)).budgets.day?.remaining, 10)
      assert.strictEqual((yield* left(claims)).tokens.remaining, 910)
    })

    test("when too much was noted, then it is given back at the end", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ tpm: 1000 })
      const a = yield* take(claims, ask("a", 300))
      yield* meter.renew(a, 200, 300)
      yield* TestClock.adjust("7 seconds")
      yield* meter.renew(a, 250, 300)
      yield* meter.renew(a, 100, 300)
      assert.strictEqual((yield* left(claims)).tokens.remaining, 700)
      assert.strictEqual((yield* meter.settle(a, 90)).tokens.remaining, 910)
    })
  })
}
