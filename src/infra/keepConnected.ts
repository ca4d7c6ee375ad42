/** A client of Redis that does not give up while its scope is open. */
import { Effect } from "effect"
import type { Cluster, Single } from "./ioredis.ts"

/** Milliseconds before the next attempt to connect. */
export const backoff = (attempt: number): number => Math.min(50 * attempt, 500)

/**
 * The client while the scope is open. ioredis stops for ever when a failover is announced while it looks for the master
 * (its FailoverDetector aborts the connecting). Every request would be 503 until a restart. So the client connects again
 * until the scope closes.
 */
export const keepConnected = (make: () => Single | Cluster) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const client = make()
      let released = false
      let attempts = 0
      client.on("ready", () => (attempts = 0))
      client.on("end", () => {
        if (released) return
        attempts += 1
        setTimeout(() => {
          // A failure emits "error" and another "end".
          if (!released && client.status === "end") client.connect().catch(() => undefined)
        }, backoff(attempts)).unref()
      })
      return {
        client,
        release: () => {
          released = true
          client.disconnect()
        }
      }
    }),
    ({ release }) => Effect.sync(release)
  ).pipe(Effect.map(({ client }) => client))
