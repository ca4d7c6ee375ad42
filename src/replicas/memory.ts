/** The processes in memory, for tests. */
import { Clock, Effect, Layer } from "effect"
import { forgetAfterS, type Replica, Replicas } from "./Replicas.ts"

export const layerMemory: Layer.Layer<Replicas> = Layer.sync(Replicas, () => {
  const rows = new Map<string, Omit<Replica, "silentS"> & { readonly seenAt: number }>()
  return Replicas.of({
    report: (replica) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        for (const [id, { seenAt }] of rows) {
          if (id !== replica.id && now - seenAt > forgetAfterS * 1000) rows.delete(id)
        }
        const started = rows.get(replica.id)?.started ?? new Date(now)
        rows.set(replica.id, { ...replica, started, seenAt: now })
      }),
    leave: (id) => Effect.sync(() => void rows.delete(id)),
    list: Effect.map(Clock.currentTimeMillis, (now) =>
      [...rows.values()].map(({ seenAt, ...replica }) => ({ ...replica, silentS: (now - seenAt) / 1000 }))
    )
  })
})
