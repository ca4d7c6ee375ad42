import { Effect, Layer } from "effect"
import { Counters } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { layerCounters } from "../../src/gates/meter/memory/layer.ts"
import { leaseS, suite, Wipe } from "./Meter.ts"
import { properties } from "./MeterProperty.ts"
import { leases } from "./MeterLeases.ts"
import { totals } from "./MeterTotals.ts"

const twin = () =>
  Layer.suspend(() => {
    const counters = new Counters({ leaseS })
    return Layer.merge(
      layerCounters(counters),
      Layer.succeed(
        Wipe,
        Effect.sync(() => counters.clear())
      )
    )
  })

suite("Meter in memory", twin)
leases("Meter in memory", twin)
totals("Meter in memory", twin)
properties("Meter in memory", twin, { runs: 400 })
