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
import { makeMonotonicMs } from "../infra/time.ts"
import { DenseList } from "../infra/DenseList.ts"
import { background, later, spaced } from "../observability/background.ts"
import type { RequestContext } from "./RequestContext.ts"
import type { Hold } from "./Hold.ts"

/** How long a store that has lost its memory may give slots away that are taken. */
const remindMs = 250

interface Lease {
  readonly hold: Hold
  /** when it is renewed next, in monotonic ms: a wall clock that is set back must not delay it */
  due: number
}

export class LeaseKeeper extends Context.Service<
  LeaseKeeper,
  {
    /** From now on, until its context is dropped. */
    keep(hold: Hold): void
    /** Milliseconds that only grow: when a reservation is asked for. */
    now(): number
    /** Whether the lease of a reservation that was asked for at `since` may have ended. */
    lapsed(since: number): boolean
    /** Over: nothing is renewed any more. */
    drop(context: RequestContext): void
  }
>()("tollgate/request/Leases") {
  /** `leaseS`: `CONCURRENCY_LEASE_S` */
  static readonly layer = (options: {
    readonly leaseS: number
  }): Layer.Layer<LeaseKeeper, never, Audit | Meter | Metrics> =>
    Layer.effect(
      LeaseKeeper,
      Effect.gen(function* () {
        const [audit, meter] = [yield* Audit, yield* Meter]
        const now = yield* makeMonotonicMs
        const beatMs = (options.leaseS * 1000) / 4
        const running = new DenseList<Lease>()

        /** Of a request that is settled, and whose answer is being written. */
        const renewSlot = ({ reservation, slotKept }: RequestContext) =>
          slotKept && reservation !== undefined
            ? Effect.catch(meter.renewSlot(reservation), (error) =>
                Effect.logDebug("slot not renewed", error.cause)
              )
            : Effect.void
        const renew = ({ hold }: Lease) =>
          Effect.suspend(() =>
            hold.context.finished
              ? renewSlot(hold.context)
              : Effect.andThen(
                  audit.progress(hold.context.arrival.requestId, hold.context.running, hold.held),
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
          running.size === 0 ? Effect.succeed(true) : meter.hasState
        ).pipe(Effect.flatMap((remembers) => (remembers ? Effect.void : renewAll(running.all))))
        yield* background("lease_reregistration", remind, later(spaced(remindMs)))

        return {
          now,
          lapsed: (since) => now() - since >= options.leaseS * 1000,
          keep: (hold) => {
            hold.context.lease = running.add({ hold, due: now() + beatMs })
          },
          drop: ({ lease }) => {
            if (lease !== undefined) running.remove(lease)
          }
        }
      })
    )
}
