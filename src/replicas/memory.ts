/** The processes in memory, for tests. */
import { Clock, Effect, Layer } from "effect"
import { makeMonotonicMs } from "../infra/time.ts"
import { forgetAfterS, type Replica, Replicas } from "./Replicas.ts"

const make = Effect.gen(function* () {
  const nowMs = yield* makeMonotonicMs
  const rows = new Map<
    string,
    Omit<Replica, "silentS" | "upS"> & { readonly began: number; readonly seenAt: number }
  >()
  return Replicas.of({
    report: (replica) =>
      Effect.map(Clock.currentTimeMillis, (startedAt) => {
        const seenAt = nowMs()
        for (const [id, row] of rows) {
          if (id !== replica.id && seenAt - row.seenAt > forgetAfterS * 1000) rows.delete(id)
        }
        const { began, started } = rows.get(replica.id) ?? { began: seenAt, started: new Date(startedAt) }
        rows.set(replica.id, { ...replica, began, started, seenAt })
      }),
    leave: (id) => Effect.sync(() => void rows.delete(id)),
    list: Effect.sync(() => {
      const now = nowMs()
      const listed = [...rows.values()].map(({ began, seenAt, ...replica }) => ({
        ...replica,
        upS: (now - began) / 1000,
        silentS: (now - seenAt) / 1000
      }))
      return { rows: listed, unreadable: [] }
    })
  })
})

export const layerMemory: Layer.Layer<Replicas> = Layer.effect(Replicas, make)
