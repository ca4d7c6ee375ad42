/** A hold whose Meter has lost totals. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { Unavailable } from "../../../src/domain/Errors.ts"
import { Meter, type Renewal } from "../../../src/gates/meter/Meter.ts"
import { layerMemory as layerMeter } from "../../../src/gates/meter/memory/layer.ts"
import { Hold, type Restore } from "../../../src/request/Hold.ts"
import { RequestCost } from "../../../src/request/RequestCost.ts"
import { callOf, permitFor, reservedFor } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

/** A running request that holds 50 tokens, before a Meter that gives `renewals` one after the other. */
const holdBefore = Effect.fnUntraced(function* (renewals: ReadonlyArray<Renewal>, restore: Restore) {
  const meter = yield* Meter
  const left = [...renewals]
  const asked: Array<number> = []
  const cost = new RequestCost()
  cost.hold(reservedFor("m", { reservation: { held: 50 } }), 0)
  cost.send(permitFor("m", callOf({}, 1000)), () => {})
  const hold = new Hold(
    cost,
    {
      ...meter,
      renew: (_, __, want) => {
        asked.push(want)
        return Effect.succeed(left.shift() ?? { held: want, exhausted: false })
      }
    },
    restore
  )
  return { asked, cost, hold }
})

const test = testWith(it.effect, layerMeter({ leaseS: 30 }))

test("when the Meter has lost a total, then it is restored and the Meter is asked once more", function* () {
  let restored = 0
  const { asked, hold } = yield* holdBefore([{ held: 50, exhausted: false }], () =>
    Effect.sync(() => void (restored += 1))
  )
  yield* hold.extend(60)
  assert.strictEqual(restored, 1)
  assert.lengthOf(asked, 2)
  assert.strictEqual(hold.held, asked[0])
  assert.isUndefined(hold.unavailable)
})

test("when a lost total cannot be restored, then the stream ends as unavailable, and not as finished", function* () {
  const down = new Unavailable({ gate: "Budget", cause: "the ledger is away" })
  const { asked, hold } = yield* holdBefore([{ held: 50, exhausted: false }], () => Effect.fail(down))
  yield* hold.extend(60)
  assert.lengthOf(asked, 1)
  assert.strictEqual(hold.held, 50)
  assert.strictEqual(hold.unavailable?.cause, down.cause)
})

test("when a budget has nothing more to give, then nothing is restored, and the stream ends with length", function* () {
  const { hold } = yield* holdBefore([{ held: 50, exhausted: true }], () => Effect.die("restored"))
  yield* hold.extend(60)
  assert.isFalse(hold.isShortOf(60))
  assert.isUndefined(hold.unavailable)
})
