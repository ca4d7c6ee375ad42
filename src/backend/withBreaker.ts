/** Calls the backend through the breaker, and reports the result of each call once. */
import { Cause, Effect, Exit, Option, type Pull, type Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { Facts, Permit } from "../domain/Evidence.ts"
import { type Chunk, type NoChunk, type Source, transformSource } from "../infra/v8/stream.ts"
import type { CircuitBreaker, Guarded } from "./CircuitBreaker.ts"
import { isBreakerFailure, type CallError } from "./errors.ts"

type Failure = BackendFailed | ShuttingDown | Unavailable
type Frames = Stream.Stream<Frame, Failure>

/**
 * Reports a failure when it passes, because a later step may turn it into an error line. Reports every other result at
 * the end. It does not use `Stream.onExit`, which takes three steps per chunk instead of one.
 */
class Reported implements Source<Frame, Failure> {
  readonly #source: Source<Frame, Failure>
  readonly #report: Guarded<Frames>["report"]
  #failed = false

  constructor(source: Source<Frame, Failure>, report: Guarded<Frames>["report"]) {
    this.#source = source
    this.#report = report
  }

  poll(): Chunk<Frame> | NoChunk {
    return this.#source.poll()
  }

  pull(): Pull.Pull<Chunk<Frame>, Failure> {
    return Effect.tapCause(this.#source.pull(), (cause) => {
      const error = Option.getOrUndefined(Cause.findErrorOption(cause))
      if (Cause.isDone(error)) return Effect.void
      this.#failed = true
      // A defect of the gateway is no result of the backend.
      return error !== undefined && isBreakerFailure(error) ? this.#report("failure") : Effect.void
    })
  }

  onReady(wake: (() => void) | undefined): void {
    this.#source.onReady(wake)
  }

  close(exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> | undefined {
    const closed = this.#source.close(exit)
    // A stream that was not read to its end counts as a success. A client that left does not count.
    if (this.#failed || !Exit.isSuccess(exit)) return closed
    const told = this.#report("success")
    return closed === undefined ? told : Effect.andThen(told, closed)
  }
}

const reportEnd = ({ report, value }: Guarded<Frames>): Frames =>
  transformSource(value, (source) => new Reported(source, report))

/** Makes the call that was admitted. */
type Call<A, R> = (admitted: Facts<"Audit">) => Effect.Effect<A, CallError, R>

/** Makes the call of the permit if the breaker allows it. Only a call that is made spends the permit. */
const spend = <A, R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  call: Call<A, R>
): Effect.Effect<Guarded<A>, CallError, R> =>
  breaker.guard(
    permit.facts.caller,
    Effect.suspend(() => call(permit.spend())),
    isBreakerFailure
  )

/** A call with a stream. Its result is reported when the stream ends. */
export const streamWithBreaker = <R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  head: Call<Frames, R>
): Effect.Effect<Frames, CallError, R> => Effect.map(spend(breaker, permit, head), reportEnd)

/** A call with one object. It is a success when the object is in. */
export const callWithBreaker = <A, R>(
  breaker: CircuitBreaker["Service"],
  permit: Permit,
  answer: Call<A, R>
): Effect.Effect<A, CallError, R> =>
  Effect.flatMap(spend(breaker, permit, answer), ({ value, report }) => Effect.as(report("success"), value))
