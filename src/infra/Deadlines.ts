/**
 * Deadlines of one duration, most of which are cancelled. They share one timer of Node, which is set for the first of them and
 * stays set when that one is cancelled. A timer of Node for each costs 0.5 KB and, when few requests run, a new list of timers
 * each time (`bench/RESULTS.md`).
 */

/** A deadline that is not over has a callback. */
interface Deadline {
  readonly due: number
  callback: (() => void) | undefined
  listed: boolean
  before: Deadline | undefined
  after: Deadline | undefined
}

export class Deadlines {
  readonly #ms: number
  readonly #fire: () => void
  #first: Deadline | undefined
  #last: Deadline | undefined
  /** set while there are deadlines, and until it fires after the last one was cancelled; then the process need not wait for it */
  #timer: NodeJS.Timeout | undefined

  constructor(ms: number) {
    this.#ms = ms
    const expire = () => this.#expireDue()
    // Node runs the timers that are due before it polls for I/O. After a stall the answers may be in the sockets' buffers
    // already: so they are read first.
    const fire = () => void setImmediate(expire)
    this.#fire = fire
  }

  /** Calls `callback` after the duration. The returned function cancels it. */
  add(callback: () => void): () => void {
    const deadline: Deadline = {
      due: performance.now() + this.#ms,
      callback,
      listed: true,
      before: this.#last,
      after: undefined
    }
    if (this.#last === undefined) this.#first = deadline
    else this.#last.after = deadline
    this.#last = deadline
    if (this.#timer === undefined) this.#setTimer(this.#ms)
    else if (this.#first === deadline) this.#timer.ref()
    return () => this.#cancel(deadline)
  }

  #cancel(deadline: Deadline): void {
    if (deadline.callback === undefined) return
    deadline.callback = undefined
    // One that has expired in this turn is in the list no longer.
    if (!deadline.listed) return
    this.#unlink(deadline)
    if (this.#first === undefined) this.#timer?.unref()
  }

  #unlink(deadline: Deadline): void {
    const { after, before } = deadline
    if (before === undefined) this.#first = after
    else before.after = after
    if (after === undefined) this.#last = before
    else after.before = before
    deadline.listed = false
    deadline.before = undefined
    deadline.after = undefined
  }

  #setTimer(ms: number): void {
    this.#timer = setTimeout(this.#fire, ms)
  }

  #expireDue(): void {
    const now = performance.now()
    const expired: Array<Deadline> = []
    // Node's clock has whole milliseconds.
    for (let next = this.#first; next !== undefined && next.due <= now + 1; next = this.#first) {
      this.#unlink(next)
      expired.push(next)
    }
    if (this.#first === undefined) this.#timer = undefined
    else this.#setTimer(Math.ceil(this.#first.due - now))
    for (const deadline of expired) {
      // Another callback may have cancelled it.
      const { callback } = deadline
      deadline.callback = undefined
      callback?.()
    }
  }
}
