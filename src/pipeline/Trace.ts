/** Steps of a request as spans, when somebody collects them; one look at a flag when not. */
import { Context, Effect } from "effect"

/** Whether spans are collected (`OTLP_ENDPOINT`). */
export const Traced = Context.Reference<boolean>("tollgate/pipeline/Traced", { defaultValue: () => false })

/** Makes the effect a step of the request's trace. */
export const step =
  (name: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Traced, (traced): Effect.Effect<A, E, R> =>
      traced ? Effect.withSpan(effect, name, { captureStackTrace: false }) : effect
    )
