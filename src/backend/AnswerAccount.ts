/**
 * How much memory the answers take that are on their way through this process, by key and in all: from the first byte that
 * the backend sends until the kernel has the last byte for the client. The bookkeeping, on any clock; the service is
 * `AnswerMemory.ts`.
 *
 * An answer is *collected* from the backend and then waits *unread* for its client. Of what is collected, `freeBytes` of each
 * answer are not counted, so that small answers never wait.
 *
 * - Answers that are collected have half of `mostBytes` together. One beyond it waits, and its connection is not read.
 * - Whoever waits first goes on beyond that half, one answer at a time, until it is whole. So the others always get their
 *   turn. For it, unread answers are cut whose clients have taken nothing for `stalledMs`, until a quarter at most is unread.
 *   For clients that read it waits `readersMs`.
 * - Unread answers are cut when all together take more than `mostBytes`: first the one with the largest product of its bytes
 *   and the time in which its client took none of them. A client that reads is hardly ever the one, nor is a small answer.
 *   The only answer that is unread is never cut for this, so the largest answer can be sent.
 * - A key whose unread answers take more than what is left of the whole begins no other request until they have been read:
 *   one key alone gets half, two get a third each, and something is always left for the others.
 *
 * So all of them take `mostBytes` and one answer more at most.
 */

/** Bytes of each answer that may be collected uncounted: its connection has a buffer of this size anyway. */
export const freeBytes = 65_536
/** A client that takes nothing for so long may be cut to make room for an answer that is collected. */
const stalledMs = 1000
/** After so long any client may be. */
const readersMs = 5000

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
  readonly go: () => void
}

const nothing = (): void => undefined
const counted = (bytes: number): number => Math.max(0, bytes - freeBytes)

export class AnswerAccount {
  readonly #mostBytes: number
  readonly #nowMs: () => number
  readonly #readers = new Set<Share>()
  readonly #byKey = new Map<string, number>()
  readonly #queue: Array<Waiter> = []
  /** the one that may go beyond the half */
  #first: Share | undefined
  #collected = 0
  #unread = 0
  #cuts = 0

  constructor(mostBytes: number, nowMs: () => number) {
    this.#mostBytes = mostBytes
    this.#nowMs = nowMs
  }

  get bytes(): number {
    return this.#collected + this.#unread
  }

  /** answers that were cut */
  get cuts(): number {
    return this.#cuts
  }

  /** answers that wait for memory */
  get waiting(): number {
    return this.#queue.length
  }

  /** Whether the unread answers of `key` leave it no room for another. */
  isFull(key: string): boolean {
    const own = this.#byKey.get(key)
    return own !== undefined && own > this.#mostBytes - this.#unread
  }

  open(key: string): Share {
    return { key, collected: 0, unread: 0, since: 0, cut: nothing }
  }

  /** Takes memory for `bytes` in all of what is collected, if there is any now. Fewer bytes than before are given back. */
  tryCollect(share: Share, bytes: number): boolean {
    const needed = counted(bytes)
    if (needed === share.collected) return true
    const more = needed > share.collected
    if (more && !this.#hasRoom(share, needed, this.#queue.length === 0)) return false
    this.#change(share, needed, share.unread)
    if (!more) this.look()
    return true
  }

  /** Calls `go` once there was memory for `bytes` and it was taken. Answers the way to stop waiting. */
  wait(share: Share, bytes: number, go: () => void): () => void {
    const waiter = { share, bytes: counted(bytes), since: this.#nowMs(), go }
    this.#queue.push(waiter)
    this.look()
    return () => {
      const at = this.#queue.indexOf(waiter)
      if (at !== -1) this.#queue.splice(at, 1)
      if (at === 0) this.look()
    }
  }

  /** Lets those go on who wait and have room. To be called from time to time while somebody waits. */
  look(): void {
    for (;;) {
      const waiter = this.#queue.find(({ share }) => share === this.#first) ?? this.#queue[0]
      if (waiter === undefined || !this.#admits(waiter)) return
      this.#queue.splice(this.#queue.indexOf(waiter), 1)
      this.#change(waiter.share, waiter.bytes, waiter.share.unread)
      waiter.go()
    }
  }

  /** From now on `bytes` are kept for the client; to be called again whenever it has taken some. 0: none are. */
  hold(share: Share, bytes: number): void {
    this.#change(share, share.collected, bytes)
    share.since = this.#nowMs()
    this.#cutBeyondAll()
    this.look()
  }

  /** The answer is whole: nothing is collected any more, and `bytes` are kept for the client. */
  deliver(share: Share, bytes: number): void {
    this.#change(share, 0, bytes)
    this.#noLongerFirst(share)
    share.since = this.#nowMs()
    this.#cutBeyondAll()
    this.look()
  }

  close(share: Share): void {
    this.#change(share, 0, 0)
    this.#noLongerFirst(share)
    this.look()
  }

  #noLongerFirst(share: Share): void {
    if (this.#first === share) this.#first = undefined
  }

  #admits({ bytes, share, since }: Waiter): boolean {
    if (this.#hasRoom(share, bytes, true)) return true
    if (this.#first !== undefined && this.#first !== share) return false
    this.#first = share
    const leastMs = this.#nowMs() - since >= readersMs ? 0 : stalledMs
    while (!this.#hasRoom(share, bytes, true) && this.#cutOne(leastMs)) continue
    return this.#hasRoom(share, bytes, true)
  }

  /** `isNext`: nobody waits whose turn comes before that of `share`. */
  #hasRoom(share: Share, needed: number, isNext: boolean): boolean {
    const more = needed - share.collected
    if (share === this.#first) {
      return this.bytes + more <= this.#mostBytes || this.#unread <= this.#mostBytes / 4
    }
    return isNext && this.#collected + more <= this.#mostBytes / 2 && this.bytes + more <= this.#mostBytes
  }

  /** The one that goes beyond the half costs no reader its answer: it has waited for them. */
  #cutBeyondAll(): void {
    while (this.bytes - (this.#first?.collected ?? 0) > this.#mostBytes && this.#readers.size > 1)
      this.#cutOne(0)
  }

  /** Cuts the worst of those whose clients have taken nothing for `leastMs`. */
  #cutOne(leastMs: number): boolean {
    const now = this.#nowMs()
    let worst: Share | undefined
    let most = -1
    for (const share of this.#readers) {
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
    if (unread === 0) this.#readers.delete(share)
    else this.#readers.add(share)
    if (more === 0) return
    const own = (this.#byKey.get(share.key) ?? 0) + more
    if (own === 0) this.#byKey.delete(share.key)
    else this.#byKey.set(share.key, own)
  }
}
