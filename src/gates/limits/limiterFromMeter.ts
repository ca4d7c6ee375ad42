/** The Limiter's decisions; the counting behind them is the Meter's. */
import { Effect, Layer } from "effect"
import { RateLimited, Unavailable } from "../../domain/Errors.ts"
import { evidence } from "../../domain/Evidence.ts"
import { Limiter } from "./Limiter.ts"

export const layerFromMeter: Layer.Layer<Limiter> = Layer.succeed(
  Limiter,
  Limiter.of({
    limits: (caller) => caller.limits,
    judge: (verdict) => {
      switch (verdict._tag) {
        case "Reserved":
          return Effect.succeed(evidence("Limiter", verdict.headroom))
        case "Missing":
          return new Unavailable({ gate: "Limiter", cause: verdict })
        case "Refused": {
          const { by, limit: value, retryAfterS, headroom } = verdict
          if (by === "requests" || by === "tokens" || by === "concurrency") {
            return new RateLimited({ limit: by, value, retryAfterS, headroom })
          }
          // Budgets are checked last: the limits had room, and the Budget has the last word.
          return Effect.succeed(evidence("Limiter", headroom))
        }
      }
    }
  })
)
