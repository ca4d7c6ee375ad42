/** All that every Meter promises, by example. */
import type { Layer } from "effect"
import type { MeterOptions } from "../../src/gates/meter/bounds.ts"
import type { Meter } from "../../src/gates/meter/Meter.ts"
import { suite, type Wipe } from "./Meter.ts"
import { groups } from "./MeterGroups.ts"
import { leases } from "./MeterLeases.ts"
import { models } from "./MeterModels.ts"
import { queueing, queueWaitMs, totals } from "./MeterTotals.ts"
import { mostUsers, users } from "./MeterUsers.ts"
import { windows } from "./MeterWindows.ts"

export const suites = (
  name: string,
  twinWith: (options: Partial<MeterOptions>) => () => Layer.Layer<Meter | Wipe>
): void => {
  for (const run of [suite, leases, totals, groups, models, windows]) run(name, twinWith({}))
  queueing(name, twinWith({ queueMaxWaitMs: queueWaitMs }))
  users(name, twinWith({ mostUsers }))
}
