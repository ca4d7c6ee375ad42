/**
 * The leases of the requests under way. Each is renewed three times in its life, and the ledger is told what has been
 * used so far: that is what a request is charged if this process dies. One beat serves them all, so that a request
 * that is over before it costs nothing. A store that has lost its memory is told at once who is under way, or it would
 * give their slots away until the next beat.
 */
import { Context, Effect, Exit, Layer } from "effect"
import { Audit } from "../audit/Audit.ts"
import type { Metrics } from "../observability/Metrics.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { makeMonotonicMs } from "../infra/monotonic.ts"
import { Roster } from "../infra/DenseList.ts"
import { background, later, spaced } from "../observability/background.ts"
import type { Exchange } from "./RequestContext.ts"
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
  static readonly layer = (options: {
    readonly leaseS: number
  }): Layer.Layer<Leases, never, Audit | Meter | Metrics> =>
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
                  Effect.suspend(() => hold.renew())
                )
          )
        /** One that cannot be renewed keeps no other from it; then the whole has failed. */
        const renewAll = (leases: ReadonlyArray<Lease>) =>
          Effect.flatMap(
            Effect.forEach(leases, (lease) => Effect.exit(renew(lease)), { concurrency: "unbounded" }),
            (exits) => exits.find(Exit.isFailure) ?? Effect.void
          )
        const beat = Effect.suspend(() => {
          const [at, due] = [now(), Array<Lease>()]
          for (const lease of running.all) {
            if (lease.due > at) continue
            lease.due = at + beatMs
            due.push(lease)
          }
          return renewAll(due)
        })
        yield* background("lease_renewal", beat, later(spaced(beatMs / 3)))

        const remind = Effect.suspend(() =>
          running.size === 0 ? Effect.succeed(true) : meter.remembers
        ).pipe(Effect.flatMap((remembers) => (remembers ? Effect.void : renewAll(running.all))))
        yield* background("lease_reregistration", remind, later(spaced(remindMs)))

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
