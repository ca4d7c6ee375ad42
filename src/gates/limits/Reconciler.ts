/**
 * Compares live counters with the ledger, and repairs them (`ledger/CounterReconciler.ts`). Code that changes counters says
 * which. They are compared when no request of theirs is open.
 */
import { Context, type Effect } from "effect"
import type { Claims, CounterOwner } from "../../domain/Reservation.ts"

export class Reconciler extends Context.Service<
  Reconciler,
  {
    /** A request with these claims changes counters. */
    compare(claims: Claims): void
    /**
     * Counters may differ from the ledger, or hold tokens of a request that was ended elsewhere: they are compared first.
     * Without `key` they are those of the group. Of a user and a model, those of their key are compared too.
     */
    compareSoon(owner: CounterOwner): Effect.Effect<void>
  }
>()("tollgate/gates/limits/Reconciler") {}
