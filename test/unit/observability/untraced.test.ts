/** Work that a request starts and does not wait for is not in its trace, because it goes on after the request. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, References } from "effect"
import { TestClock } from "effect/testing"
import { makeTally } from "../../../src/audit/Tally.ts"
import { SettlementQueue } from "../../../src/gates/limits/SettlementQueue.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { arrivalOf } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

/** As in a request that is traced. */
const inRequest = Effect.provideService(References.TracerEnabled, true)

const test = testWith(it.effect)

test("when shared rows of refusals are written, then the loop that writes them is not traced", function* () {
  const traced: Array<boolean> = []
  const tally = yield* makeTally(() =>
    Effect.map(References.TracerEnabled, (enabled) => {
      traced.push(enabled)
      return true
    })
  )
  const add = tally.add({
    arrival: arrivalOf("01a1fe92-0000-7000-8000-00000000000a"),
    streamed: false,
    usage: { tokensIn: 0, tokensOut: 0, source: "estimated" },
    status: 401,
    latencyMs: 1
  })
  yield* inRequest(add)
  yield* TestClock.adjust("2 seconds")
  assert.deepStrictEqual(traced, [false])
})

testWith(it.effect, SettlementQueue.layer({ drainMs: 0 }).pipe(Layer.provide(Metrics.layer)))(
  "when a settlement is delivered later, then the delivery is not traced",
  function* () {
    const traced: Array<boolean> = []
    const queue = yield* SettlementQueue
    const deliver = Effect.map(References.TracerEnabled, (enabled) => void traced.push(enabled))
    yield* inRequest(queue.retry("a delivery", deliver))
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(traced, [false])
  }
)
