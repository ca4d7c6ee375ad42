/** Calls to the backend through the breaker: how each ends is reported, once. */
import { Effect, type Stream } from "effect"
import type { BackendFailed, ShuttingDown } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { CircuitBreaker } from "./CircuitBreaker.ts"
import { isBreakerFailure, type Refused } from "./faults.ts"
import type { Ended } from "./FrameReader.ts"

type Frames = Stream.Stream<Frame, BackendFailed | ShuttingDown>

/**
 * The head is guarded, and how the stream that `streamOf` makes of it ends is the verdict. A client that left, or a
 * defect of our own, says nothing of the backend.
 */
export const guarded = <A, R>(
  breaker: CircuitBreaker["Service"],
  head: Effect.Effect<A, Refused, R>,
  streamOf: (head: A, ended: Ended) => Frames
): Effect.Effect<Frames, Refused, R> =>
  Effect.map(breaker.guard(head, isBreakerFailure), ({ value, report }) =>
    streamOf(value, (error) => {
      if (error === undefined) return report("success")
      return isBreakerFailure(error) ? report("failure") : Effect.void
    })
  )

/** A call with one answer: when it is in, the call has gone well. */
export const guardedWhole = <A, R>(
  breaker: CircuitBreaker["Service"],
  answer: Effect.Effect<A, Refused, R>
): Effect.Effect<A, Refused, R> =>
  Effect.flatMap(breaker.guard(answer, isBreakerFailure), ({ value, report }) =>
    Effect.as(report("success"), value)
  )
