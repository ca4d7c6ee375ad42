/** Compares nothing: for counters whose ledger is in the same memory. */
import { Effect, Layer } from "effect"
import { Reconciler } from "../../src/gates/limits/Reconciler.ts"

export const noReconciler = Layer.succeed(Reconciler, {
  compare: () => {},
  compareSoon: () => Effect.void
})
