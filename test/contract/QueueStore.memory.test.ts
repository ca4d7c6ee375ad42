import { Effect, Layer } from "effect"
import { layerMemoryOf, QueueMemory } from "../../src/gates/queue/memory.ts"
import { QueueStore } from "../../src/gates/queue/QueueStore.ts"
import { batchEveryMs, graceMs, leaseS, Replicas, suite } from "./QueueStore.ts"

const twin = () =>
  Layer.sync(Replicas, () => {
    const memory = new QueueMemory({ leaseS, graceMs, batchEveryMs })
    return {
      of: (name) => Effect.provide(QueueStore, layerMemoryOf(memory, name)),
      clear: Effect.sync(() => memory.clear()),
      delivered: () => Effect.void
    }
  })

suite("QueueStore in memory", twin)
