/**
 * Renews the leases of running requests, three times in the life of a lease. It also records what they have used so far,
 * which is their charge if this process dies. One timer serves all requests, so a short request costs nothing. If Redis
 * restarts empty, running requests register again at once, so that their slots are not given out twice.
 */
import { Context, Effect, Exit, Layer } from "effect"
import { Audit } from "../audit/Audit.ts"
import type { Metrics } from "../observability/Metrics.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { Link, LinkedList } from "../infra/LinkedList.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { background, later, spaced } from "../observability/background.ts"
import type { Hold } from "./Hold.ts"

/** How often the store is asked whether it has lost its state. Meanwhile it may give out slots that are taken. */
const reRegisterMs = 250

interface Lease {
  readonly hold: Hold
  /** time of the next renewal, in monotonic ms, which a change of the wall clock does not delay */
  due: number
}

export class LeaseKeeper extends Context.Service<
  LeaseKeeper,
  {
    /** Renews the lease, until the function is called that this returns. */
    keep(hold: Hold): () => void
    /** The requests whose leases are renewed: those that wait in the queue or run, the oldest first. */
    open(): ReadonlyArray<Hold>
    /** Monotonic milliseconds: the time at which a reservation is requested. */
    now(): number
    /** Whether the lease of a reservation that was requested at `since` may have ended. */
    lapsed(since: number): boolean
  }
>()("tollgate/request/LeaseKeeper") {
  /** `leaseS`: `CONCURRENCY_LEASE_S` */
  static readonly layer = (options: {
    readonly leaseS: number
  }): Layer.Layer<LeaseKeeper, never, Audit | Meter | Metrics> =>
    Layer.effect(
      LeaseKeeper,
      Effect.gen(function* () {
        const audit = yield* Audit
        const meter = yield* Meter
        const now = yield* makeMonotonicMs
        const heartbeatMs = (options.leaseS * 1000) / 4
        const running = new LinkedList<Lease>()

        const renew = ({ hold }: Lease) =>
          Effect.suspend(() => {
            const { ended, held, running: usage } = hold.cost
            // Its answer may still be on its way to the client.
            if (ended !== undefined || held === undefined) return Effect.void
            audit.progress(held.reservation.id, usage, hold.held)
            return hold.renew
          })
        /** A failed renewal does not stop the others; the run fails afterwards. */
        const renewAll = (leases: Iterable<Lease>) =>
          Effect.flatMap(
            Effect.forEach(leases, (lease) => Effect.exit(renew(lease)), { concurrency: "unbounded" }),
            (exits) => exits.find(Exit.isFailure) ?? Effect.void
          )
        const heartbeat = Effect.suspend(() => {
          const at = now()
          const due = running.all.filter((lease) => lease.due <= at)
          for (const lease of due) lease.due = at + heartbeatMs
          return renewAll(due)
        })
        yield* background("lease_renewal", heartbeat, later(spaced(heartbeatMs / 3)))

        const reRegister = Effect.suspend(() =>
          running.size === 0 ? Effect.succeed(true) : meter.hasState
        ).pipe(Effect.flatMap((hasState) => (hasState ? Effect.void : renewAll(running.all))))
        yield* background("lease_reregistration", reRegister, later(spaced(reRegisterMs)))

        return {
          now,
          open: () => running.all.map(({ hold }) => hold),
          lapsed: (since) => now() - since >= options.leaseS * 1000,
          keep: (hold) => {
            const lease = new Link({ hold, due: now() + heartbeatMs })
            running.add(lease)
            return () => void running.remove(lease)
          }
        }
      })
    )
}
