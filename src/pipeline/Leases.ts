/**
 * The leases of the requests under way. Each is renewed three times in its life, and the ledger is told what has been
 * used so far: that is what a request is charged if this process dies. One beat serves them all, so that a request
 * that is over before it costs nothing. A store that has lost its memory is told at once who is under way, or it would
 * give their slots away until the next beat.
 */
import { Context, Effect, Layer, Schedule } from "effect"
import { Audit } from "../audit/Audit.ts"
import { Meter } from "../gates/Meter/Meter.ts"
import { makeMonotonicMs } from "../infra/monotonic.ts"
import { Roster } from "../infra/Roster.ts"
import type { Exchange } from "./Exchange.ts"
import type { Hold } from "./Hold.ts"

/** How long a store that has lost its memory may give slots away that are taken. */
const remindMs = 250

interface Lease {
  readonly hold: Hold
  /** when it is renewed next, in monotonic ms: a wall clock that is set back must not delay it */
  due: number
}

export class Leases extends Context.Service<
  Leases,
  {
    /** From now on, until its exchange is dropped. */
    keep(hold: Hold): void
    /** Milliseconds that only grow: when a reservation is asked for. */
    now(): number
    /** Whether the lease of a reservation that was asked for at `since` may have ended. */
    lapsed(since: number): boolean
    /** Over: nothing is renewed any more. */
    drop(exchange: Exchange): void
  }
>()("tollgate/pipeline/Leases") {
  /** `leaseS`: `CONCURRENCY_LEASE_S` */
  static readonly layer = (options: { readonly leaseS: number }): Layer.Layer<Leases, never, Audit | Meter> =>
    Layer.effect(
      Leases,
      Effect.gen(function* () {
        const [audit, meter] = [yield* Audit, yield* Meter]
        const now = yield* makeMonotonicMs
        const beatMs = (options.leaseS * 1000) / 4
        const running = new Roster<Lease>()

        /** Of a request that is settled, and whose answer is being written. */
        const renewSlot = ({ reservation, slotKept }: Exchange) =>
          slotKept && reservation !== undefined
            ? Effect.catch(meter.renewSlot(reservation), (error) =>
                Effect.logDebug("a slot was not renewed", error.cause)
              )
            : Effect.void
        const renew = ({ hold }: Lease) =>
          Effect.suspend(() =>
            hold.exchange.concluded
              ? renewSlot(hold.exchange)
              : Effect.andThen(
                  audit.progress(hold.exchange.arrival.requestId, hold.exchange.running, hold.held),
                  Effect.suspend(() => hold.renew)
                )
          )
        const beat = Effect.suspend(() => {
          const [at, due] = [now(), Array<Lease>()]
          for (const lease of running.all) {
            if (lease.due > at) continue
            lease.due = at + beatMs
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

        const remind = Effect.suspend(() =>
          running.size === 0 ? Effect.succeed(true) : meter.remembers
        ).pipe(
          Effect.flatMap((remembers) =>
            remembers
              ? Effect.void
              : Effect.forEach(running.all, renew, { concurrency: "unbounded", discard: true })
          )
        )
        yield* remind.pipe(
          Effect.catchCause((cause) => Effect.logDebug("the store was not asked what it remembers", cause)),
          Effect.schedule(Schedule.spaced(remindMs)),
          Effect.forkScoped
        )

        return {
          now,
          lapsed: (since) => now() - since >= options.leaseS * 1000,
          keep: (hold) => {
            hold.exchange.lease = running.enter({ hold, due: now() + beatMs })
          },
          drop: ({ lease }) => {
            if (lease !== undefined) running.leave(lease)
          }
        }
      })
    )
}
