/** Calls the backend through the breaker, and reports the result of each call once. */
import { Effect, Exit, Pull, Scope, Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { Facts, Permit } from "../domain/Evidence.ts"
import type { CircuitBreaker, Guarded, Verdict } from "./CircuitBreaker.ts"
import { type CallError, verdictOf } from "./errors.ts"

type Frames = Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>

/** Makes the call that was admitted. */
type Call<A, R> = (admitted: Facts<"Audit">) => Effect.Effect<A, CallError, R>

/**
 * A failure of a request with an image counts against its own key only: an image can look whole and still end the runner
 * (docs/hardening.md).
 */
const verdictFor =
  ({ facts: { call } }: Permit) =>
  (error: CallError): Verdict => {
    const verdict = verdictOf(error)
    return verdict === "failure" && (call.request.images ?? []).length > 0 ? "own" : verdict
  }

/** Makes the call of the permit if the breaker allows it. Only a call that is made spends the permit. */
const spend = <A, R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  call: Call<A, R>
): Effect.Effect<Guarded<A, CallError>, CallError, R> =>
  breaker.guard(
    permit.facts.caller,
    Effect.suspend(() => call(permit.spend())),
    verdictFor(permit)
  )

/** A call with a stream. Its result is that of the stream; a stream whose rest is not wanted is a success. */
export const streamWithBreaker = <R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  head: Call<Frames, R>
): Effect.Effect<Frames, CallError, R> =>
  Effect.map(spend(breaker, permit, head), ({ heard, report, value }) =>
    Stream.transformPull(value, (pull, scope) =>
      Effect.as(
        // For a stream whose rest nobody pulls. An error of its reader says nothing of the model server.
        Scope.addFinalizerExit(scope, (exit) => report(Exit.isSuccess(exit) ? exit : Exit.interrupt())),
        Effect.onExit(pull, (exit) =>
          Exit.isSuccess(exit) ? heard : report(Pull.doneExitFromCause(exit.cause))
        )
      )
    )
  )

/** A call with one object. It is a success when the object is in. */
export const callWithBreaker = <A, R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  answer: Call<A, R>
): Effect.Effect<A, CallError, R> =>
  Effect.flatMap(spend(breaker, permit, answer), ({ report, value }) => Effect.as(report(Exit.void), value))
