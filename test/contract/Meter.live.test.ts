import { Effect, Layer } from "effect"
import { Redis } from "../../src/infra/Redis.ts"
import { layerMeterOnClock } from "../support/TestMeter.ts"
import { leaseS, suite, Wipe } from "./Meter.ts"
import { properties } from "./MeterProperty.ts"

const wipe = Layer.effect(
  Wipe,
  Effect.map(Redis, ({ send }) => Effect.orDie(Effect.asVoid(send("FLUSHDB", []))))
)

const twin = () => Layer.provideMerge(wipe, layerMeterOnClock({ leaseS }))

suite("Meter in Redis", twin)
properties("Meter in Redis", twin, { runs: 100 })
