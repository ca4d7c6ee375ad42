/**
 * `CircuitBreaker` on the store of `effect/persistence/CircuitBreaker`, which brings the state machine: one probe at
 * a time, generations that fence stale results, TestClock. Its `execute` is not used, because it judges a call by
 * its head alone, while here a stream's end is a verdict of its own and a good head resets nothing: `admit` and
 * `record`, which `execute` is made of, say exactly that.
 *
 * Nearly always the circuit is closed and nothing speaks against the backend; then the store would let everybody
 * through, and a success would change nothing. It is not asked then: three questions a request were a tenth of the
 * steps a request takes.
 *
 * Per process: every replica makes up its own mind (hardening R36).
 */
import { Cause, Duration, Effect, Exit, Layer } from "effect"
import { CircuitBreaker as Breaker } from "effect/persistence"
import { BackendFailed } from "../domain/Errors.ts"
import { type BreakerState, CircuitBreaker, type Guarded } from "./CircuitBreaker.ts"

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

  /** The generation of a closed circuit that no failure speaks against. */
  let calm: number | undefined
  /** The generation of a closed circuit, whatever speaks against it. */
  let closed: number | undefined

  const admit = Effect.scoped(circuit.admit(key)).pipe(
    Effect.mapError(refused),
    Effect.tap(({ generation, probe }) => Effect.sync(() => void (closed = probe ? undefined : generation)))
  )
  const tell = (generation: number, outcome: "Success" | "Failure" | "Ignored") =>
    // The memory store cannot fail; if it did, going on without the verdict would be failing open.
    Effect.map(
      Effect.orDie(circuit.record({ key, generation, outcome, tripPolicy, openFor })),
      (transition) => {
        if (transition !== undefined) closed = undefined
        else if (outcome === "Success" && generation === closed) calm = generation
      }
    )
  const record = (generation: number, outcome: "Success" | "Failure" | "Ignored"): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (outcome !== "Failure") return generation === calm ? Effect.void : tell(generation, outcome)
      calm = undefined
      return tell(generation, outcome)
    })
  const reporting =
    (generation: number) =>
    (outcome: "success" | "failure"): Effect.Effect<void> =>
      record(generation, outcome === "success" ? "Success" : "Failure")

  const guardCalmly = <A, E, R>(
    generation: number,
    head: Effect.Effect<A, E, R>,
    isFailure: (error: E) => boolean
  ): Effect.Effect<Guarded<A>, E, R> =>
    Effect.map(
      Effect.onExit(head, (exit) =>
        Exit.isSuccess(exit) ? Effect.void : record(generation, verdict(exit.cause, isFailure))
      ),
      (value) => ({ value, report: reporting(generation) })
    )

  const guardCarefully = <A, E, R>(head: Effect.Effect<A, E, R>, isFailure: (error: E) => boolean) =>
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
          return { value: exit.value, report: reporting(generation) }
        }
        yield* record(admission.generation, verdict(exit.cause, isFailure))
        return yield* Effect.failCause(exit.cause)
      })
    )

  const state = Effect.map(Effect.orDie(circuit.state(key)), (state): BreakerState => {
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

  return CircuitBreaker.of({
    guard: (head, isFailure) =>
      Effect.suspend(() =>
        calm === undefined ? guardCarefully(head, isFailure) : guardCalmly(calm, head, isFailure)
      ),
    state: Effect.suspend(() => (calm === undefined ? state : Effect.succeed("closed" as const)))
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
