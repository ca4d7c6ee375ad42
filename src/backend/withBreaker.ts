/** Calls the backend through the breaker, and reports the result of each call once. */
import { Context, Effect, Exit, Pull, Scope, Stream } from "effect"
import type { Answer, AnswerPull, Frames } from "../domain/Frame.ts"
import type { Facts, Permit } from "../domain/Evidence.ts"
import type { CircuitBreaker, Guarded } from "./CircuitBreaker.ts"
import { type CallError, verdictOf } from "./errors.ts"

/** A call with frames, from the moment at which it is made. */
export interface Running {
  /** Waits for its first frames. */
  readonly begun: Effect.Effect<Begun, CallError>
  /** Ends the call, in any state. What it returns is waited for. */
  close(exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> | undefined
}

export interface Begun {
  readonly frames: Frames
  readonly rest: AnswerPull
}

/** The answer from its first frames on. */
const answerOf = (first: Frames, rest: AnswerPull): Answer => {
  let ahead: Frames | undefined = first
  const next = Effect.suspend(() => {
    const frames = ahead
    ahead = undefined
    return frames === undefined ? rest : Effect.succeed(frames)
  })
  return Stream.fromPull(Effect.succeed(next))
}

/** `next`, after the line of the log, if there is one. */
const after = <A, E>(line: Effect.Effect<void> | undefined, next: Exit.Exit<A, E>): Effect.Effect<A, E> =>
  line === undefined ? next : Effect.andThen(line, next)

/**
 * A call with frames, which ends with the Scope. Its result is that of its frames; a call whose rest is not wanted is a success. The end
 * is registered before the call is made, so that no interruption comes between the two.
 */
export const streamWithBreaker = (
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  make: (admitted: Facts<"Audit">) => Running
): Effect.Effect<Answer, CallError, Scope.Scope> =>
  Effect.contextWith((services: Context.Context<Scope.Scope>) => {
    let guarded: Guarded<CallError> | undefined
    let running: Running | undefined
    const close = (exit: Exit.Exit<unknown, unknown>) => {
      const closing = running?.close(exit)
      // For frames that nobody pulls. An error of their reader, or of ours, says nothing of the model server.
      const isServed = Exit.isSuccess(exit) && running !== undefined
      const told = after(guarded?.ended(isServed ? Exit.void : Exit.interrupt()), Exit.void)
      return closing === undefined ? told : Effect.andThen(closing, told)
    }
    const call = Effect.suspend(() => {
      const passed = breaker.guard(permit.facts.caller, verdictOf)
      if (Exit.isFailure(passed)) return Exit.failCause(passed.cause)
      const { ended, heard } = passed.value
      guarded = passed.value
      running = make(permit.spend())
      return Effect.matchCauseEffect(running.begun, {
        onFailure: (cause) => after(ended(Exit.failCause(cause)), Exit.failCause(cause)),
        onSuccess: ({ frames, rest }) => {
          const reported = Effect.matchCauseEffect(rest, {
            onFailure: (cause) => after(ended(Pull.doneExitFromCause(cause)), Exit.failCause(cause)),
            onSuccess: (more) => after(heard(), Exit.succeed(more))
          })
          return after(heard(), Exit.succeed(answerOf(frames, reported)))
        }
      })
    })
    return Effect.andThen(Scope.addFinalizerExit(Context.get(services, Scope.Scope), close), call)
  })

/** A call with one object. It is a success when the object is in. */
export const callWithBreaker = <A, R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  call: (admitted: Facts<"Audit">) => Effect.Effect<A, CallError, R>
): Effect.Effect<A, CallError, R> => {
  let guarded: Guarded<CallError> | undefined
  const made = Effect.suspend(() => {
    const passed = breaker.guard(permit.facts.caller, verdictOf)
    if (Exit.isFailure(passed)) return Exit.failCause(passed.cause)
    guarded = passed.value
    return call(permit.spend())
  })
  return Effect.onExit(made, (exit) => {
    const heard = Exit.isSuccess(exit) ? guarded?.heard() : undefined
    return Effect.andThen(after(heard, Exit.void), after(guarded?.ended(exit), Exit.void))
  })
}
