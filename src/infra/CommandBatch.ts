/**
 * What is sent to Redis in one turn of the event loop: it leaves in one write, under load a fraction of the system calls,
 * and has one deadline, counted from that write. ioredis counts from when a command is asked for and rings before what has
 * come is read: a process that takes half a second to begin a thousand streams calls a Redis dead that it has asked nothing.
 */
import { Effect } from "effect"
import type { Timer } from "./time.ts"

type Resume<E> = (outcome: Effect.Effect<never, E>) => void

class Turn<E> {
  readonly #waiting = new Set<Resume<E>>()
  #callOff: () => void = () => undefined

  join(resume: Resume<E>): void {
    this.#waiting.add(resume)
  }

  leave(resume: Resume<E>): void {
    this.#waiting.delete(resume)
    if (this.#waiting.size === 0) this.#callOff()
  }

  /** From here on `ms` count. */
  depart(alarm: Timer, ms: number, late: () => E): void {
    if (this.#waiting.size === 0) return
    this.#callOff = alarm(ms, () => {
      const outcome = Effect.fail(late())
      for (const resume of this.#waiting) resume(outcome)
    })
  }
}

export interface CommandBatchOptions<E> {
  /** on the real clock: an answer takes the time it takes */
  readonly alarm: Timer
  /** how long an answer may take, milliseconds */
  readonly ms: number
  /** keeps what is written from now on, until what it answers is called */
  readonly cork: () => () => void
  readonly failed: (cause: unknown) => E
}

/**
 * Calls `ask`, which may write, and waits for its answer for as long as one may take. Whoever is interrupted while it waits
 * has nothing to take back: the command is on its way.
 */
export type BatchedCommand<E> = <A>(ask: () => Promise<A>) => Effect.Effect<A, E>

export const makeCommandBatch = <E>({
  alarm,
  cork,
  failed,
  ms
}: CommandBatchOptions<E>): BatchedCommand<E> => {
  const late = () => failed(`no answer in ${ms} ms`)
  let current: Turn<E> | undefined
  const turn = (): Turn<E> => {
    if (current !== undefined) return current
    const begun = new Turn<E>()
    const uncork = cork()
    setImmediate(() => {
      current = undefined
      uncork()
      begun.depart(alarm, ms, late)
    })
    current = begun
    return begun
  }
  return <A>(ask: () => Promise<A>) =>
    Effect.callback<A, E>((resume) => {
      const mine = turn()
      mine.join(resume)
      const fail = (cause: unknown) => {
        mine.leave(resume)
        resume(Effect.fail(failed(cause)))
      }
      try {
        ask().then((answer) => {
          mine.leave(resume)
          resume(Effect.succeed(answer))
        }, fail)
      } catch (cause) {
        fail(cause)
      }
    })
}
