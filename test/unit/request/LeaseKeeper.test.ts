/** Nobody is admitted beyond a limit because a clock was set. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { layerMemory as layerAudit } from "../../support/twins/Audit.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { Meter, Reserved } from "../../../src/gates/meter/Meter.ts"
import type { Claims } from "../../../src/domain/Reservation.ts"
import { layerMemory as layerMeter } from "../../../src/gates/meter/memory/layer.ts"
import { RequestCost } from "../../../src/request/RequestCost.ts"
import { Hold } from "../../../src/request/Hold.ts"
import { LeaseKeeper } from "../../../src/request/LeaseKeeper.ts"
import { reservedFor } from "../../support/permits.ts"
import { onWallClock, WallClock } from "../../support/SteppedClock.ts"
import { testWith } from "../../support/testWith.ts"

const leaseS = 30
const hourMs = 3_600_000
const claims: Claims = {
  account: { group: "g", key: "k" },
  limits: { rpm: 1000, tpm: 100_000, concurrent: 1 },
  budgets: {}
}

const reserve = (id: string) =>
  Effect.flatMap(Meter, (meter) => meter.reserve(claims, { id, tokens: 5, slot: true }))

/** A request that runs, and is kept alive. */
const running = Effect.gen(function* () {
  const [leases, meter] = [yield* LeaseKeeper, yield* Meter]
  const verdict = yield* reserve("01a1fe92-0000-7000-8000-00000000000a")
  assert.instanceOf(verdict, Reserved)
  const cost = new RequestCost()
  if (verdict instanceof Reserved) {
    cost.hold(reservedFor("m", { reservation: verdict.reservation }), leases.now())
  }
  leases.keep(new Hold(cost, meter, () => Effect.void))
})

const leases = onWallClock(LeaseKeeper.layer({ leaseS })).pipe(Layer.provide(Metrics.layer))

/** The store's clock is another machine's, which nobody sets; or that of the gateway itself, without Redis. */
const stores = {
  "another clock": leases.pipe(Layer.provideMerge(layerMeter({ leaseS }))),
  "the same clock": leases.pipe(Layer.provideMerge(onWallClock(layerMeter({ leaseS }))))
}

for (const [store, layer] of Object.entries(stores)) {
  const world = layer.pipe(Layer.provideMerge(layerAudit), Layer.provideMerge(WallClock.layer))
  const test = testWith(it.effect, world)
  for (const stepMs of [-hourMs, hourMs]) {
    test(`when the wall clock is set by ${stepMs / hourMs} h and the store has ${store}, then a running request keeps its slot`, function* () {
      const { step } = yield* WallClock
      yield* running
      yield* step(stepMs)
      let admitted = 0
      for (let second = 0; second < 4 * leaseS; second++) {
        if ((yield* reserve(`other-${second}`)) instanceof Reserved) admitted += 1
        yield* TestClock.adjust("1 second")
      }
      assert.strictEqual(admitted, 0, "admitted beyond concurrent 1")
    })
  }
}

testWith(
  it.effect,
  stores["another clock"].pipe(Layer.provideMerge(layerAudit), Layer.provideMerge(WallClock.layer))
)(
  "when a reservation was requested a lease ago, then its lease may have ended, and not before",
  function* () {
    const [{ lapsed, now }, { step }] = [yield* LeaseKeeper, yield* WallClock]
    const since = now()
    yield* step(hourMs)
    yield* TestClock.adjust(leaseS * 1000 - 1)
    assert.isFalse(lapsed(since))
    yield* step(-hourMs)
    yield* TestClock.adjust(1)
    assert.isTrue(lapsed(since))
  }
)
