/** Steps of a request as spans, when a collector is set. */
import { Context, Effect } from "effect"

/** Whether spans are collected (`OTLP_ENDPOINT`). */
export const Traced = Context.Reference<boolean>("tollgate/observability/Traced", {
  defaultValue: () => false
})

/** Makes an effect a step of the request's trace. */
export type Step = (name: string) => <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

const untraced: Step = () => (effect) => effect
const traced: Step = (name) => (effect) => Effect.withSpan(effect, name, { captureStackTrace: false })

/** Without a collector a step costs nothing. */
export const stepOf = (collected: boolean): Step => (collected ? traced : untraced)
