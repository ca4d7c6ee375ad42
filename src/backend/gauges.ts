/** Gauges of the circuit breaker and of the memory for answers. */
import { Effect, Layer } from "effect"
import { Metrics } from "../observability/Metrics.ts"
import { AnswerMemory } from "./AnswerMemory.ts"
import type { BreakerState } from "./Circuit.ts"
import { CircuitBreaker } from "./CircuitBreaker.ts"

const figure = { closed: 0, "half-open": 1, open: 2 } as const satisfies Record<BreakerState, number>

export const layerBackendGauges: Layer.Layer<never, never, AnswerMemory | CircuitBreaker | Metrics> =
  Layer.effectDiscard(
    Effect.gen(function* () {
      const breaker = yield* CircuitBreaker
      const memory = yield* AnswerMemory
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
      yield* metrics.probe({
        name: "tollgate_unread_answer_bytes",
        help: "Bytes of answers in this process: collected from the backend, or not yet read by their clients",
        read: memory.bytes
      })
      yield* metrics.probe({
        name: "tollgate_unread_answers_cut",
        help: "Answers cut since the start, because all together took more than UNREAD_ANSWERS_MAX_BYTES",
        type: "counter",
        read: memory.cuts
      })
      yield* metrics.probe({
        name: "tollgate_answers_waiting",
        help: "Answers that wait for memory before more of them is read from the backend",
        read: memory.waiting
      })
    })
  )
