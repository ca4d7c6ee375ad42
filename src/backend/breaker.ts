/**
 * `CircuitBreaker` on the store of `effect/persistence/CircuitBreaker`, which brings the state machine: one probe at
 * a time, generations that fence stale results, TestClock. Its `execute` is not used, because it judges a call by
 * its head alone, while here a stream's end is a verdict of its own and a good head resets nothing: `admit` and
 * `record`, which `execute` is made of, say exactly that.
 *
 * Per process: every replica makes up its own mind (hardening R36).
 */
import { Cause, Duration, Effect, Exit, Layer } from "effect"
import { CircuitBreaker as Breaker } from "effect/persistence"
import { BackendFailed } from "../domain/Errors.ts"
import { type BreakerState, CircuitBreaker } from "./CircuitBreaker.ts"

export interface BreakerOptions {
  /** consecutive failures that open it; at least 1 */
  readonly failures: number
  readonly openMs: number
}

/** There is one backend, so there is one circuit; and it is remembered as long as the process lives. */
const key = "backend"
const store = Breaker.layerStoreMemory({ idleTimeToLive: Duration.infinity })

const make = Effect.fnUntraced(function* (options: BreakerOptions) {
  const circuit = yield* Breaker.CircuitBreakerStore
  const tripPolicy = Breaker.consecutive(options.failures)
  const openFor = Duration.millis(options.openMs)

  const admit = Effect.scoped(circuit.admit(key)).pipe(Effect.mapError(refused))
  const record = (generation: number, outcome: "Success" | "Failure" | "Ignored") =>
    // The memory store cannot fail; if it did, going on without the verdict would be failing open.
    Effect.orDie(Effect.asVoid(circuit.record({ key, generation, outcome, tripPolicy, openFor })))

  const guard = <A, E, R>(head: Effect.Effect<A, E, R>, isFailure: (error: E) => boolean) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const admission = yield* admit
        const exit = yield* Effect.exit(restore(head))
        if (Exit.isSuccess(exit)) {
          let generation = admission.generation
          if (admission.probe) {
            yield* record(generation, "Success")
            // The proven circuit starts a new generation, and this stream's end is its first verdict.
            generation = (yield* admit).generation
          }
          return {
            value: exit.value,
            report: (outcome: "success" | "failure") =>
              record(generation, outcome === "success" ? "Success" : "Failure")
          }
        }
        yield* record(admission.generation, verdict(exit.cause, isFailure))
        return yield* Effect.failCause(exit.cause)
      })
    )

  return CircuitBreaker.of({
    guard,
    state: Effect.map(Effect.orDie(circuit.state(key)), (state): BreakerState => {
      switch (state._tag) {
        case "Closed":
          return "closed"
        case "HalfOpen":
          return "half-open"
        case "Open":
          // The store turns only when the next request knocks: whoever asks before must not be sent away.
          return Duration.toMillis(state.retryAfter) > 0 ? "open" : "half-open"
      }
    })
  })
})

/** A client that left says nothing about the backend; a defect is ours. Either frees the probe. */
const verdict = <E>(cause: Cause.Cause<E>, isFailure: (error: E) => boolean): "Failure" | "Ignored" => {
  if (Cause.hasInterrupts(cause)) return "Ignored"
  const error = Cause.findErrorOption(cause)
  return error._tag === "Some" && isFailure(error.value) ? "Failure" : "Ignored"
}

const refused = (error: Breaker.CircuitBreakerError): BackendFailed => {
  const reason = error.reason
  const waitMs = reason._tag === "CircuitOpen" ? Duration.toMillis(reason.retryAfter) : 0
  return new BackendFailed({
    fault: "circuit-open",
    retryAfterS: Math.max(1, Math.ceil(waitMs / 1000)),
    cause: error
  })
}

export const layerCircuitBreaker = (options: BreakerOptions): Layer.Layer<CircuitBreaker> =>
  Layer.effect(CircuitBreaker, make(options)).pipe(Layer.provide(Layer.fresh(store)))
