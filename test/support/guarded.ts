/** A call through the circuit breaker, as tests of it make one. */
import { Effect, Exit } from "effect"
import type { CircuitBreaker, Party, Verdict } from "../../src/backend/CircuitBreaker.ts"
import type { CircuitOpen } from "../../src/domain/Errors.ts"

/** A call that has begun, whose reports are effects. */
export interface Begun<E> {
  readonly heard: Effect.Effect<void>
  readonly ended: (exit: Exit.Exit<unknown, E>) => Effect.Effect<void>
}

/** Makes a call if the breaker lets it pass, and reports its first frame or its failure. */
export const guarded = <A, E>(
  breaker: CircuitBreaker["Service"],
  party: Party,
  head: Effect.Effect<A, E>,
  verdictOf: (error: E) => Verdict
): Effect.Effect<Begun<E>, E | CircuitOpen> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(
      Effect.suspend(() => breaker.guard(party, verdictOf)),
      (call) => {
        const heard = Effect.suspend(() => call.heard() ?? Effect.void)
        const ended = (exit: Exit.Exit<unknown, E>) => Effect.suspend(() => call.ended(exit) ?? Effect.void)
        return Effect.matchCauseEffect(restore(head), {
          onFailure: (cause) => Effect.andThen(ended(Exit.failCause(cause)), Effect.failCause(cause)),
          onSuccess: () => Effect.as(heard, { heard, ended })
        })
      }
    )
  )
