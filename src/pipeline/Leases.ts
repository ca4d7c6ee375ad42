/**
 * The leases of the requests under way. Each is renewed three times in its life, and the ledger is told what has been
 * used so far: that is what a request is charged if this process dies. One beat serves them all, so that a request
 * that is over before it costs nothing.
 */
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { Audit } from "../audit/Audit.ts"
import type { Exchange } from "./Exchange.ts"
import type { Hold } from "./Hold.ts"

interface Lease {
  readonly hold: Hold
  /** epoch ms */
  due: number
}

export class Leases extends Context.Service<
  Leases,
  {
    /** From now on, until its exchange is dropped. */
    keep(hold: Hold): void
    /** Over: nothing is renewed any more. */
    drop(exchange: Exchange): void
  }
>()("tollgate/pipeline/Leases") {
  /** `leaseS`: `CONCURRENCY_LEASE_S` */
  static readonly layer = (options: { readonly leaseS: number }): Layer.Layer<Leases, never, Audit> =>
    Layer.effect(
      Leases,
      Effect.gen(function* () {
        const [audit, clock] = [yield* Audit, yield* Clock.Clock]
        const beatMs = (options.leaseS * 1000) / 4
        const running = new Map<Exchange, Lease>()

        const renew = ({ hold }: Lease) =>
          Effect.andThen(
            Effect.suspend(() =>
              audit.progress(hold.exchange.arrival.requestId, hold.exchange.running, hold.held)
            ),
            Effect.suspend(() => hold.renew)
          )
        const beat = Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const due: Array<Lease> = []
          for (const lease of running.values()) {
            if (lease.due > now) continue
            lease.due = now + beatMs
            due.push(lease)
          }
          return Effect.forEach(due, renew, { concurrency: "unbounded", discard: true })
        })
        yield* beat.pipe(
          // A beat that breaks must not be the last.
          Effect.catchCause((cause) => Effect.logError("leases could not be renewed", cause)),
          Effect.schedule(Schedule.spaced(beatMs / 3)),
          Effect.forkScoped
        )

        return {
          keep: (hold) =>
            void running.set(hold.exchange, { hold, due: clock.currentTimeMillisUnsafe() + beatMs }),
          drop: (exchange) => void running.delete(exchange)
        }
      })
    )
}
