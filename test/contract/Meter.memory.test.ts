import { Clock, Effect, Layer } from "effect"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { makeMemory } from "../../src/gates/meter/memory/layer.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { leaseS, Wipe } from "./Meter.ts"
import type { MeterOptions } from "../../src/gates/meter/bounds.ts"
import { suites } from "./MeterSuites.ts"

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

suites("Meter in memory", twinWith)
