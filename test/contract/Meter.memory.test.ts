import { Clock, Effect, Layer } from "effect"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { makeMemory } from "../../src/gates/meter/memory/layer.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { leaseS, suite, Wipe } from "./Meter.ts"
import type { MeterOptions } from "../../src/gates/meter/bounds.ts"
import { groups } from "./MeterGroups.ts"
import { leases } from "./MeterLeases.ts"
import { models } from "./MeterModels.ts"
import { queueing, queueWaitMs, totals } from "./MeterTotals.ts"
import { mostUsers, users } from "./MeterUsers.ts"
import { windows } from "./MeterWindows.ts"

const twinWith = (options: Partial<MeterOptions>) => () =>
  Layer.suspend(() => {
    const counters = new MemoryMeter({ leaseS, ...options })
    return Layer.merge(
      Layer.effect(
        Meter,
        Effect.map(Clock.Clock, (clock) => makeMemory(counters, () => clock.currentTimeMillisUnsafe()))
      ),
      Layer.succeed(
        Wipe,
        Effect.sync(() => counters.clear())
      )
    )
  })

const twin = twinWith({})

suite("Meter in memory", twin)
leases("Meter in memory", twin)
totals("Meter in memory", twin)
groups("Meter in memory", twin)
models("Meter in memory", twin)
windows("Meter in memory", twin)
queueing("Meter in memory", twinWith({ queueMaxWaitMs: queueWaitMs }))
users("Meter in memory", twinWith({ mostUsers }))
