import { Effect, Layer } from "effect"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { layerMemoryMeter } from "../../src/gates/meter/memory/layer.ts"
import { leaseS, suite, Wipe } from "./Meter.ts"
import { properties } from "./MeterProperty.ts"
import { groups } from "./MeterGroups.ts"
import { leases } from "./MeterLeases.ts"
import { totals } from "./MeterTotals.ts"
import { windows } from "./MeterWindows.ts"

const twin = () =>
  Layer.suspend(() => {
    const counters = new MemoryMeter({ leaseS })
    return Layer.merge(
      layerMemoryMeter(counters),
      Layer.succeed(
        Wipe,
        Effect.sync(() => counters.clear())
      )
    )
  })

suite("Meter in memory", twin)
leases("Meter in memory", twin)
totals("Meter in memory", twin)
groups("Meter in memory", twin)
windows("Meter in memory", twin)
properties("Meter in memory", twin, { runs: 400 })
