import { Effect } from "effect"

/**
 * What a finalizer of `Effect.onExitPrimitive` returns when its work may be done already. An effect takes three steps, even
 * `Effect.void`, and `undefined` takes none.
 */
export const unlessVoid = (work: Effect.Effect<void> | undefined): Effect.Effect<void> | undefined =>
  work === Effect.void ? undefined : work
