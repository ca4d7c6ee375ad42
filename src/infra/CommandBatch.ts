/**
 * Sends all Redis commands of one turn of the event loop in one write, with one deadline that starts at the write. One
 * write needs fewer system calls under load. ioredis starts its own timer when a command is queued, so a busy event loop
 * would time out commands that were never sent.
 */
import { Effect } from "effect"
import type { Timer } from "./time.ts"

type Resume<E> = (outcome: Effect.Effect<never, E>) => void

class Batch<E> {
  readonly #waiting = new Set<Resume<E>>()
  #cancelTimer: () => void = () => undefined

  add(resume: Resume<E>): void {
    this.#waiting.add(resume)
  }

  remove(resume: Resume<E>): void {
    this.#waiting.delete(resume)
    if (this.#waiting.size === 0) this.#cancelTimer()
  }

  /** Starts the deadline. */
  startTimer(timer: Timer, ms: number, late: () => E): void {
    if (this.#waiting.size === 0) return
    this.#cancelTimer = timer(ms, () => {
      const outcome = Effect.fail(late())
      for (const resume of this.#waiting) resume(outcome)
    })
  }
}

export interface CommandBatchOptions<E> {
  /** on the real clock */
  readonly timer: Timer
  /** how long a reply may take, milliseconds */
  readonly ms: number
  /** buffers writes until the returned function is called */
  readonly cork: () => () => void
  readonly failed: (cause: unknown) => E
}

/**
 * Calls `send`, which writes a command, and waits for its reply until the deadline. An interruption does not take the
 * command back.
 */
export type BatchedCommand<E> = <A>(send: () => Promise<A>) => Effect.Effect<A, E>

export const makeCommandBatch = <E>({
  cork,
  failed,
  ms,
  timer
}: CommandBatchOptions<E>): BatchedCommand<E> => {
  const late = () => failed(`no answer in ${ms} ms`)
  let current: Batch<E> | undefined
  const currentBatch = (): Batch<E> => {
    if (current !== undefined) return current
    const batch = new Batch<E>()
    const uncork = cork()
    setImmediate(() => {
      current = undefined
      uncork()
      batch.startTimer(timer, ms, late)
    })
    current = batch
    return batch
  }
  return <A>(send: () => Promise<A>) =>
    Effect.callback<A, E>((resume) => {
      const batch = currentBatch()
      batch.add(resume)
      const fail = (cause: unknown) => {
        batch.remove(resume)
        resume(Effect.fail(failed(cause)))
      }
      try {
        send().then((reply) => {
          batch.remove(resume)
          resume(Effect.succeed(reply))
        }, fail)
      } catch (cause) {
        fail(cause)
      }
    })
}
