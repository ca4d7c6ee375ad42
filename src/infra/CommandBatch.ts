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

/** Takes the reply to a command. One of them is called, once. */
export interface Answer<A> {
  succeed(reply: A): void
  fail(cause: unknown): void
}

interface Unsent {
  send(): void
}

/** A caller that may have no reply yet. */
interface Unanswered<E> {
  expire(error: E): void
}

class Batch<E> {
  /** all who waited for a reply; those who have it ignore the deadline */
  readonly #callers: Array<Unanswered<E>> = []
  #unanswered = 0
  readonly #unsent: Array<Unsent> = []
  #cancelTimer: () => void = () => undefined

  add(caller: Unanswered<E>): void {
    this.#callers.push(caller)
    this.#unanswered += 1
  }

  /** One of the callers has its reply. */
  answered(): void {
    this.#unanswered -= 1
    if (this.#unanswered === 0) this.#cancelTimer()
  }

  /** `unsent` is sent before the batch is written, or earlier. */
  later(unsent: Unsent): void {
    this.#unsent.push(unsent)
  }

  /** Sends what was gathered so far. */
  flush(): void {
    for (const unsent of this.#unsent.splice(0)) unsent.send()
  }

  /** Starts the deadline. */
  startTimer(timer: Timer, ms: number, late: () => E): void {
    if (this.#unanswered === 0) return
    this.#cancelTimer = timer(ms, () => {
      const error = late()
      for (const caller of this.#callers) caller.expire(error)
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
export type BatchedCommand<E> = <A>(send: (answer: Answer<A>) => void) => Effect.Effect<A, E>

/**
 * What a reply or a failure means. It is called as soon as the reply is there, and not in the fiber of the caller. This saves
 * the fiber two steps.
 */
export interface Reading<A, E, B, E2> {
  readonly reply: (reply: A) => Effect.Effect<B, E2>
  readonly failure: (error: E) => Effect.Effect<B, E2>
}

/** Makes one of the calls that become a command. */
export type GatheredCall<Call, A, E> = <B, E2>(
  place: string,
  call: Call,
  reading: Reading<A, E, B, E2>
) => Effect.Effect<B, E2>

export interface CommandBatch<E> {
  readonly command: BatchedCommand<E>
  /**
   * Gathers the calls of one turn that have the same place, and calls `send` with at most `most` of them. `send` writes one
   * command, and answers with the replies in the order of the calls. When it fails, all its callers fail.
   */
  readonly gather: <Call, A>(
    most: number,
    send: (calls: ReadonlyArray<Call>, answer: Answer<ReadonlyArray<A>>) => void
  ) => GatheredCall<Call, A, E>
}

/** Who waits for a command. It ends their deadline. */
class Caller<A, E, B, E2> implements Answer<A>, Unanswered<E> {
  readonly #batch: Batch<E>
  readonly #resume: Resume<B, E2>
  readonly #reading: Reading<A, E, B, E2>
  readonly #failed: (cause: unknown) => E
  #isOver = false

  constructor(
    batch: Batch<E>,
    resume: Resume<B, E2>,
    reading: Reading<A, E, B, E2>,
    failed: (cause: unknown) => E
  ) {
    this.#batch = batch
    this.#resume = resume
    this.#reading = reading
    this.#failed = failed
    batch.add(this)
  }

  succeed(reply: A): void {
    if (this.#isOver) return
    this.#end()
    this.#resume(this.#read(reply))
  }

  fail(cause: unknown): void {
    if (this.#isOver) return
    this.#end()
    this.#resume(this.#reading.failure(this.#failed(cause)))
  }

  expire(error: E): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#resume(this.#reading.failure(error))
  }

  #end(): void {
    this.#isOver = true
    this.#batch.answered()
  }

  /** A defect of the reader is that of its caller. The other calls of the command get their replies. */
  #read(reply: A): Effect.Effect<B, E2> {
    try {
      return this.#reading.reply(reply)
    } catch (defect) {
      return Effect.die(defect)
    }
  }
}

/** The calls of one command, and who made them. */
class Group<Call, A> implements Unsent, Answer<ReadonlyArray<A>> {
  readonly place: string
  readonly #callers: Array<Answer<A>> = []
  readonly #calls: Array<Call> = []
  readonly #write: (group: Group<Call, A>, calls: ReadonlyArray<Call>) => void

  constructor(place: string, write: (group: Group<Call, A>, calls: ReadonlyArray<Call>) => void) {
    this.place = place
    this.#write = write
  }

  get size(): number {
    return this.#calls.length
  }

  add(call: Call, caller: Answer<A>): void {
    this.#calls.push(call)
    this.#callers.push(caller)
  }

  send(): void {
    try {
      this.#write(this, this.#calls)
    } catch (cause) {
      this.fail(cause)
    }
  }

  succeed(replies: ReadonlyArray<A>): void {
    this.#callers.forEach((caller, i) => {
      const reply = replies[i]
      if (reply === undefined) caller.fail("no answer to this call")
      else caller.succeed(reply)
    })
  }

  fail(cause: unknown): void {
    for (const caller of this.#callers) caller.fail(cause)
  }
}

/** For a caller that reads its reply itself. */
const asItIs = { reply: Effect.succeed, failure: Effect.fail }

export const makeCommandBatch = <E>({ cork, failed, ms, timer }: CommandBatchOptions<E>): CommandBatch<E> => {
  const late = () => failed(`no answer in ${ms} ms`)
  let current: Batch<E> | undefined
  const currentBatch = (): Batch<E> => {
    if (current !== undefined) return current
    const batch = new Batch<E>()
    const uncork = cork()
    setImmediate(() => {
      // Before the flush: when a command cannot be written, its callers fail at once, and may make calls that this flush would
      // not send.
      current = undefined
      batch.flush()
      uncork()
      batch.startTimer(timer, ms, late)
    })
    current = batch
    return batch
  }

  const gather = <Call, A>(
    most: number,
    send: (calls: ReadonlyArray<Call>, answer: Answer<ReadonlyArray<A>>) => void
  ) => {
    /** Those that take further calls. Few, and not a `Map`: see `v8/DenseList.ts`. */
    const open: Array<Group<Call, A>> = []
    const close = (group: Group<Call, A>): void => {
      const at = open.indexOf(group)
      if (at !== -1) open.splice(at, 1)
    }
    const write = (group: Group<Call, A>, calls: ReadonlyArray<Call>): void => {
      close(group)
      send(calls, group)
    }

    return <B, E2>(place: string, call: Call, reading: Reading<A, E, B, E2>): Effect.Effect<B, E2> =>
      Effect.callback<B, E2>((resume) => {
        const batch = currentBatch()
        let group = open.find((begun) => begun.place === place)
        if (group === undefined) {
          group = new Group(place, write)
          open.push(group)
          batch.later(group)
        }
        group.add(call, new Caller(batch, resume, reading, failed))
        // The next call begins another command.
        if (group.size >= most) close(group)
      })
  }

  const command: BatchedCommand<E> = <A>(send: (answer: Answer<A>) => void) =>
    Effect.callback<A, E>((resume) => {
      const batch = currentBatch()
      batch.flush()
      const caller = new Caller<A, E, A, E>(batch, resume, asItIs, failed)
      try {
        send(caller)
      } catch (cause) {
        caller.fail(cause)
      }
    })

  return { command, gather }
}
