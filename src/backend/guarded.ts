/** A call to the backend through the breaker: its head is guarded, and how its stream ends is reported, once. */
import { Cause, Effect, Exit, Stream } from "effect"
import type { BackendFailed, BadRequest, Forbidden } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { CircuitBreaker } from "./CircuitBreaker.ts"
import { isBreakerFailure } from "./faults.ts"

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
