/** Calls to the backend through the breaker: how each ends is reported, once. */
import { Cause, Effect, Exit, Stream } from "effect"
import type { BackendFailed, BadRequest, Forbidden } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { CircuitBreaker } from "./CircuitBreaker.ts"
import { isBreakerFailure } from "./faults.ts"

/** The head is guarded, and how its stream ends is the verdict. */
export const guarded = <R>(
  breaker: CircuitBreaker["Service"],
  head: Effect.Effect<Stream.Stream<Frame, BackendFailed>, BackendFailed | BadRequest | Forbidden, R>
): Effect.Effect<Stream.Stream<Frame, BackendFailed>, BackendFailed | BadRequest | Forbidden, R> =>
  Effect.map(breaker.guard(head, isBreakerFailure), ({ value, report }) =>
    Stream.onExit(value, (exit) => {
      if (Exit.isSuccess(exit)) return report("success")
      // A client that left, or a defect of our own: nothing is known of the backend.
      if (Cause.hasInterrupts(exit.cause)) return Effect.void
      const error = Cause.findErrorOption(exit.cause)
      return error._tag === "Some" && isBreakerFailure(error.value) ? report("failure") : Effect.void
    })
  )

/** A call with one answer: when it is in, the call has gone well. */
export const guardedWhole = <A, R>(
  breaker: CircuitBreaker["Service"],
  answer: Effect.Effect<A, BackendFailed | BadRequest | Forbidden, R>
): Effect.Effect<A, BackendFailed | BadRequest | Forbidden, R> =>
  Effect.flatMap(breaker.guard(answer, isBreakerFailure), ({ value, report }) =>
    Effect.as(report("success"), value)
  )
