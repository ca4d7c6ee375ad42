/**
 * Runs calls through the state machine of `Circuit.ts`, with the monotonic clock. A change of state is logged once.
 */
import { Cause, Effect, Exit, Layer } from "effect"
import { CircuitOpen } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import {
  type Admission,
  Circuit,
  type CircuitOptions,
  type CallResult,
  type Party,
  Refusal
} from "./Circuit.ts"
import { CircuitBreaker, type Guarded } from "./CircuitBreaker.ts"

export const makeCircuitBreaker = Effect.fnUntraced(function* (options: CircuitOptions) {
  const nowMs = yield* makeMonotonicMs
  const circuit = new Circuit(options)

  /** Applies a transition at once. The effect logs when it opened or closed the circuit. */
  const apply = (transition: () => void): Effect.Effect<void> => {
    const wasClosed = circuit.isClosed
    transition()
    if (circuit.isClosed === wasClosed) return Effect.void
    return wasClosed
      ? Effect.logWarning("circuit breaker opened", { failures: options.failures })
      : Effect.logInfo("circuit breaker closed")
  }

  const record = (admission: Admission, outcome: CallResult): Effect.Effect<void> =>
    apply(() => circuit.record(admission, outcome, nowMs()))

  const guarded = <A>(admission: Admission, value: A): Guarded<A> => ({
    value,
    report: (outcome) => record(admission, outcome)
  })

  const run = <A, E, R>(
    admission: Admission,
    head: Effect.Effect<A, E, R>,
    isFailure: (error: E) => boolean
  ): Effect.Effect<Guarded<A>, E, R> => {
    const judged = Effect.onExitPrimitive(head, (exit) =>
      Exit.isSuccess(exit) ? undefined : record(admission, resultOf(exit.cause, isFailure))
    )
    // Only the first frame of a probe changes the state; other requests skip this step.
    if (!admission.probe)
      return Effect.map(judged, (value) => guarded(circuit.began(admission, nowMs()), value))
    return Effect.flatMap(judged, (value) => {
      let current = admission
      const began = apply(() => void (current = circuit.began(admission, nowMs())))
      return Effect.map(began, () => guarded(current, value))
    })
  }

  const guard = <A, E, R>(
    party: Party,
    head: Effect.Effect<A, E, R>,
    isFailure: (error: E) => boolean
  ): Effect.Effect<Guarded<A>, E | CircuitOpen, R> => {
    const admitted = (marked: Effect.Effect<A, E, R>): Effect.Effect<Guarded<A>, E | CircuitOpen, R> => {
      const admission = circuit.admit(party, nowMs())
      return admission instanceof Refusal
        ? Effect.fail(circuitOpen(admission.waitMs))
        : run(admission, marked, isFailure)
    }
    // No interruption may come between taking the probe and the call, so that the probe is always given back.
    return Effect.suspend(() =>
      circuit.isClosed ? admitted(head) : Effect.uninterruptibleMask((restore) => admitted(restore(head)))
    )
  }

  return CircuitBreaker.of({
    guard,
    check: (party) => {
      const waitMs = circuit.waitMs(party, nowMs())
      return waitMs > 0 ? Effect.fail(circuitOpen(waitMs)) : Effect.void
    },
    isClosed: () => circuit.isClosed,
    state: Effect.sync(() => circuit.state(nowMs()))
  })
})

export const circuitOpen = (waitMs: number): CircuitOpen =>
  new CircuitOpen({ retryAfterS: Math.max(1, Math.ceil(waitMs / 1000)) })

/** A client that left and a defect of the gateway are not results of the backend. Both give the probe back. */
export const resultOf = <E>(cause: Cause.Cause<E>, isFailure: (error: E) => boolean): CallResult => {
  if (Cause.hasInterrupts(cause)) return "ignored"
  const error = Cause.findErrorOption(cause)
  return error._tag === "Some" && isFailure(error.value) ? "failure" : "ignored"
}

export const layerCircuitBreaker = (options: CircuitOptions): Layer.Layer<CircuitBreaker> =>
  Layer.effect(CircuitBreaker, makeCircuitBreaker(options))
