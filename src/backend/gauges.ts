/** Gauges of the circuit breaker. */
import { Effect, Layer } from "effect"
import { Metrics } from "../observability/Metrics.ts"
import type { BreakerState } from "./Circuit.ts"
import { CircuitBreaker } from "./CircuitBreaker.ts"

const figure = { closed: 0, "half-open": 1, open: 2 } as const satisfies Record<BreakerState, number>

export const layerBackendGauges: Layer.Layer<never, never, CircuitBreaker | Metrics> = Layer.effectDiscard(
  Effect.gen(function* () {
    const breaker = yield* CircuitBreaker
    const metrics = yield* Metrics
    yield* metrics.probe({
      name: "tollgate_breaker_state",
      help: "The circuit for all keys toward the model server: 0 closed, 1 half-open, 2 open",
      read: Effect.map(breaker.state, (state) => figure[state])
    })
    yield* metrics.probe({
      name: "tollgate_breaker_open_keys",
      help: "Keys and tenants that are refused because their own requests made the model server fail",
      read: breaker.openKeys
    })
  })
)
