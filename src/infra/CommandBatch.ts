/**
 * Sends all Redis commands of one turn of the event loop in one write, with one deadline that starts at the write. One
 * write needs fewer system calls under load. ioredis starts its own timer when a command is queued, so a busy event loop
 * would time out commands that were never sent.
 *
 * Calls that are gathered become a few commands at the end of the turn, or before the next other command of the turn, so
 * that commands keep the order of their callers.
 */
import { Effect } from "effect"
import type { Timer } from "./time.ts"

type Resume<A, E> = (outcome: Effect.Effect<A, E>) => void

class Batch<E> {
  readonly #waiting = new Set<Resume<never, E>>()
  readonly #unsent: Array<() => void> = []
  #cancelTimer: () => void = () => undefined

  add(resume: Resume<never, E>): void {
    this.#waiting.add(resume)
  }

  remove(resume: Resume<never, E>): void {
    this.#waiting.delete(resume)
    if (this.#waiting.size === 0) this.#cancelTimer()
  }

  /** `send` is called before the batch is written, or earlier. */
  later(send: () => void): void {
    this.#unsent.push(send)
  }

  /** Sends what was gathered so far. */
  flush(): void {
    for (const send of this.#unsent.splice(0)) send()
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

export interface CommandBatch<E> {
  readonly command: BatchedCommand<E>
  /**
   * Gathers the calls of one turn that have the same place, and calls `send` with at most `most` of them. `send` writes one
   * command, and resolves to the replies in the order of the calls. When it fails, all its callers fail.
   */
  readonly gather: <Call, A>(
    most: number,
    send: (calls: ReadonlyArray<Call>) => Promise<ReadonlyArray<A>>
  ) => (place: string, call: Call) => Effect.Effect<A, E>
}

interface Gathered<Call, A, E> {
  readonly calls: Array<Call>
  readonly callers: Array<Resume<A, E>>
}

export const makeCommandBatch = <E>({ cork, failed, ms, timer }: CommandBatchOptions<E>): CommandBatch<E> => {
  const late = () => failed(`no answer in ${ms} ms`)
  let current: Batch<E> | undefined
  const currentBatch = (): Batch<E> => {
    if (current !== undefined) return current
    const batch = new Batch<E>()
    const uncork = cork()
    setImmediate(() => {
      batch.flush()
      current = undefined
      uncork()
      batch.startTimer(timer, ms, late)
    })
    current = batch
    return batch
  }

  const gather = <Call, A>(most: number, send: (calls: ReadonlyArray<Call>) => Promise<ReadonlyArray<A>>) => {
    const groups = new Map<string, Gathered<Call, A, E>>()

    const sendGroup = (batch: Batch<E>, { calls, callers }: Gathered<Call, A, E>): void => {
      const fail = (cause: unknown) => {
        const outcome = Effect.fail(failed(cause))
        for (const resume of callers) {
          batch.remove(resume)
          resume(outcome)
        }
      }
      send(calls).then((replies) => {
        callers.forEach((resume, i) => {
          batch.remove(resume)
          const reply = replies[i]
          resume(reply === undefined ? Effect.fail(failed("no answer to this call")) : Effect.succeed(reply))
        })
      }, fail)
    }

    return (place: string, call: Call): Effect.Effect<A, E> =>
      Effect.callback<A, E>((resume) => {
        const batch = currentBatch()
        batch.add(resume)
        let group = groups.get(place)
        if (group === undefined) {
          const begun: Gathered<Call, A, E> = { calls: [], callers: [] }
          groups.set(place, begun)
          batch.later(() => {
            if (groups.get(place) === begun) groups.delete(place)
            sendGroup(batch, begun)
          })
          group = begun
        }
        group.calls.push(call)
        group.callers.push(resume)
        // The next call begins another command.
        if (group.calls.length >= most) groups.delete(place)
      })
  }

  const command: BatchedCommand<E> = <A>(send: () => Promise<A>) =>
    Effect.callback<A, E>((resume) => {
      const batch = currentBatch()
      batch.flush()
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

  return { command, gather }
}
