/** Whether requests are traced. */
import { Context, Effect, References } from "effect"

/** Whether spans are collected (`OTLP_ENDPOINT`). Without a collector nothing of a request has a span. */
export const Traced = Context.Reference<boolean>("tollgate/observability/Traced", {
  defaultValue: () => false
})

/** Takes work out of the trace of the request that starts it, because the work goes on after the request. */
export const untraced = Effect.provideService(References.TracerEnabled, false)
