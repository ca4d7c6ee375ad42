/** A server that answers no ping is not waited for: it takes connections while it is frozen, and answers nothing. */
import { Cause, Effect, Exit } from "effect"
import { BackendFailed } from "../../domain/Errors.ts"
import { NotAnswering } from "../errors.ts"

export const watchPings = <A, E>(ask: Effect.Effect<A, E>, notAnsweringMs: number) => {
  /** whether the last ping was answered */
  let answers = true
  const ping = Effect.onExit(ask, (exit) =>
    Effect.sync(() => {
      if (Exit.isSuccess(exit)) answers = true
      else if (!Cause.hasInterrupts(exit.cause)) answers = false
    })
  )
  const notAnswering = Effect.suspend(() =>
    answers
      ? Effect.never
      : new BackendFailed({ fault: "timeout", cause: new NotAnswering("no answer, nor to a ping") })
  )
  return {
    /** Asks the server, and remembers whether it answered. */
    ping,
    /**
     * A call that is made at once. If the last ping had no answer, and there is none within `notAnsweringMs`, the call fails. Otherwise each
     * request to a frozen server would wait for its whole time, and the circuit would stay closed for as long.
     */
    endingSoon: <A, Failure, R>(
      call: Effect.Effect<A, Failure, R>
    ): Effect.Effect<A, Failure | BackendFailed, R> =>
      // The call goes on when a ping is answered meanwhile, so this is no timeout.
      // @effect-diagnostics-next-line raceFirstWithSleepToTimeout:off
      answers ? call : Effect.raceFirst(call, Effect.delay(notAnswering, notAnsweringMs))
  }
}
