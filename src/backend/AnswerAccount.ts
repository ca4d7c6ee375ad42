/**
 * Counts the memory of answers in this process, by key and in total: from the first byte of the backend until the kernel
 * has the last byte for the client. This class has the rules; `AnswerMemory.ts` is the service.
 *
 * The bytes of an answer are *collected* from the backend, and then wait *unread* for the client. The first `freeBytes`
 * of each answer are not counted, so that small answers never wait.
 *
 * - All answers that are collected may take half of `maxBytes`. Beyond it an answer waits, and its connection to the
 *   backend is not read.
 * - The answer that has waited longest may go beyond that half, one answer at a time, until it is complete. To make room
 *   for it, unread answers are cut until at most a quarter is unread: first those whose clients took nothing for
 *   `stalledMs`, and after `slowMs` also those of slow clients.
 * - When all answers take more than `maxBytes`, unread ones are cut: first the one with the largest product of its bytes
 *   and the time since its client took some. That is hardly ever a client that reads, or a small answer. The only unread
 *   answer is never cut for this reason, so the largest answer can be sent.
 * - A key starts no further request while its unread answers take more than what is left of `maxBytes`. One key alone
 *   gets half, two get a third each, and something is always left.
 *
 * So all answers take at most `maxBytes` and one answer more.
 */

/** Bytes of each answer that are not counted. Its connection has a buffer of this size anyway. */
export const freeBytes = 65_536
/** A client that takes nothing for this time may be cut to make room for an answer that is collected. */
const stalledMs = 1000
/** When an answer has waited this long, clients that read may be cut too. */
const slowMs = 5000

interface Share {
  readonly key: string
  collected: number
  unread: number
  /** when its client last took bytes, in monotonic ms */
  since: number
  cut: () => void
}

interface Waiter {
  readonly share: Share
  readonly bytes: number
  /** monotonic ms */
  readonly since: number
  readonly resume: () => void
}

const doNothing = (): void => undefined
const counted = (bytes: number): number => Math.max(0, bytes - freeBytes)

export class AnswerAccount {
  readonly #maxBytes: number
  readonly #nowMs: () => number
  readonly #unreadShares = new Set<Share>()
  readonly #byKey = new Map<string, number>()
  readonly #queue: Array<Waiter> = []
  /** the share that may go beyond the half */
  #first: Share | undefined
  #collected = 0
  #unread = 0
  #cuts = 0

  constructor(maxBytes: number, nowMs: () => number) {
    this.#maxBytes = maxBytes
    this.#nowMs = nowMs
  }

  get bytes(): number {
    return this.#collected + this.#unread
  }

  /** number of answers that were cut */
  get cuts(): number {
    return this.#cuts
  }

  /** number of answers that wait for memory */
  get waiting(): number {
    return this.#queue.length
  }

  /** Whether the unread answers of `key` leave no room for another one. */
  isFull(key: string): boolean {
    const own = this.#byKey.get(key)
    return own !== undefined && own > this.#maxBytes - this.#unread
  }

  open(key: string): Share {
    return { key, collected: 0, unread: 0, since: 0, cut: doNothing }
  }

  /**
   * Sets what is collected to `bytes` in total. Returns false and changes nothing when there is no memory for it now.
   */
  tryCollect(share: Share, bytes: number): boolean {
    const needed = counted(bytes)
    if (needed === share.collected) return true
    const more = needed > share.collected
    if (more && !this.#hasRoom(share, needed, this.#queue.length === 0)) return false
    this.#change(share, needed, share.unread)
    if (!more) this.admitWaiting()
    return true
  }

  /** Calls `resume` when there is memory for `bytes`, and takes it. Returns a function that stops waiting. */
  wait(share: Share, bytes: number, resume: () => void): () => void {
    const waiter = { share, bytes: counted(bytes), since: this.#nowMs(), resume }
    this.#queue.push(waiter)
    this.admitWaiting()
    return () => {
      const at = this.#queue.indexOf(waiter)
      if (at !== -1) this.#queue.splice(at, 1)
      if (at === 0) this.admitWaiting()
    }
  }

  /** Resumes the waiting answers that have room now. Must be called from time to time while an answer waits. */
  admitWaiting(): void {
    for (;;) {
      const waiter = this.#queue.find(({ share }) => share === this.#first) ?? this.#queue[0]
      if (waiter === undefined || !this.#admits(waiter)) return
      this.#queue.splice(this.#queue.indexOf(waiter), 1)
      this.#change(waiter.share, waiter.bytes, waiter.share.unread)
      waiter.resume()
    }
  }

  /** Sets the bytes that wait for the client. Called again whenever the client has taken some; 0 when none wait. */
  hold(share: Share, bytes: number): void {
    this.#change(share, share.collected, bytes)
    share.since = this.#nowMs()
    this.#cutToLimit()
    this.admitWaiting()
  }

  /** The answer is complete: `bytes` wait for the client, and nothing more is collected. */
  deliver(share: Share, bytes: number): void {
    this.#change(share, 0, bytes)
    this.#endFirst(share)
    share.since = this.#nowMs()
    this.#cutToLimit()
    this.admitWaiting()
  }

  /** The share refers to its request no longer, so that whoever still has the share does not keep the request in memory. */
  close(share: Share): void {
    share.cut = doNothing
    this.#change(share, 0, 0)
    this.#endFirst(share)
    this.admitWaiting()
  }

  #endFirst(share: Share): void {
    if (this.#first === share) this.#first = undefined
  }

  #admits({ bytes, share, since }: Waiter): boolean {
    if (this.#hasRoom(share, bytes, true)) return true
    if (this.#first !== undefined && this.#first !== share) return false
    this.#first = share
    const leastMs = this.#nowMs() - since >= slowMs ? 0 : stalledMs
    while (!this.#hasRoom(share, bytes, true) && this.#cutOne(leastMs)) continue
    return this.#hasRoom(share, bytes, true)
  }

  /** `isNext`: no other share waits before `share`. */
  #hasRoom(share: Share, needed: number, isNext: boolean): boolean {
    const more = needed - share.collected
    if (share === this.#first) {
      return this.bytes + more <= this.#maxBytes || this.#unread <= this.#maxBytes / 4
    }
    return isNext && this.#collected + more <= this.#maxBytes / 2 && this.bytes + more <= this.#maxBytes
  }

  /** The collected bytes of `#first` do not count here, because unread answers were already cut for them. */
  #cutToLimit(): void {
    while (this.bytes - (this.#first?.collected ?? 0) > this.#maxBytes && this.#unreadShares.size > 1)
      this.#cutOne(0)
  }

  /** Cuts the answer with the highest cost whose client has taken nothing for `leastMs`. */
  #cutOne(leastMs: number): boolean {
    const now = this.#nowMs()
    let worst: Share | undefined
    let most = -1
    for (const share of this.#unreadShares) {
      const cost = share.unread * (now - share.since)
      if (cost > most && now - share.since >= leastMs) [worst, most] = [share, cost]
    }
    if (worst === undefined) return false
    this.#change(worst, worst.collected, 0)
    this.#cuts += 1
    worst.cut()
    return true
  }

  #change(share: Share, collected: number, unread: number): void {
    const more = unread - share.unread
    this.#collected += collected - share.collected
    this.#unread += more
    share.collected = collected
    share.unread = unread
    if (unread === 0) this.#unreadShares.delete(share)
    else this.#unreadShares.add(share)
    if (more === 0) return
    const own = (this.#byKey.get(share.key) ?? 0) + more
    if (own === 0) this.#byKey.delete(share.key)
    else this.#byKey.set(share.key, own)
  }
}
