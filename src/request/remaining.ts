/** What is left for a caller, without consuming anything: for the headers of lists and of refusals. */
import { Effect } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { Unavailable } from "../domain/Errors.ts"
import { type Headroom, periods } from "../domain/Limits.ts"
import { bucketsAt, marked } from "../gates/meter/verdicts.ts"
import { type MeterDown, Missing } from "../gates/meter/Meter.ts"
import type { Claims, Reservation } from "../domain/Reservation.ts"
import type { Ports } from "./Ports.ts"

export const claimsOf = ({ limiter, budget }: Ports, caller: Caller): Claims => ({
  account: { group: caller.tenantId, key: caller.keyId },
  limits: limiter.limits(caller),
  budgets: budget.budgets(caller)
})

/** Nobody can tell what is left, so nobody is let through. */
export const meterUnavailable = (error: MeterDown): Unavailable =>
  new Unavailable({ gate: "Limiter", cause: error.cause })

/** Asks the Meter; when it misses counters, restores them from the ledger and asks once more. */
export const restoring = <A>(
  { budget }: Ports,
  caller: Caller,
  ask: Effect.Effect<A | Missing, MeterDown>
): Effect.Effect<A | Missing, Unavailable> => {
  const asked = Effect.mapError(ask, meterUnavailable)
  return Effect.flatMap(asked, (first) =>
    first instanceof Missing ? Effect.andThen(budget.restore(caller, first), asked) : Effect.succeed(first)
  )
}

/** Loads the budget totals of a running request from the ledger: for a store that has lost them meanwhile. */
export const restoreTotals = (
  { budget }: Ports,
  caller: Caller,
  { admittedAt, claims }: Reservation
): Effect.Effect<void, Unavailable> => {
  const claimed = periods.map((period) => claims.budgets[period] !== undefined)
  return budget.restore(caller, new Missing({ buckets: marked(bucketsAt(admittedAt), claimed) }))
}

export const makeHeadroom = (ports: Ports) => (caller: Caller) =>
  Effect.flatMap(
    restoring<Headroom>(ports, caller, ports.meter.peek(claimsOf(ports, caller))),
    (headroom): Effect.Effect<Headroom, Unavailable> =>
      headroom instanceof Missing
        ? new Unavailable({ gate: "Budget", cause: headroom })
        : Effect.succeed(headroom)
  )
