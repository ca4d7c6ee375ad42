/**
 * The queue for verifies, bounded in total and for each prefix.
 *
 * *Details* When the queue is full, a new entry replaces a random waiting one: of its own prefix when that has too many,
 * otherwise a suspect one. First come, first served would give all places to the client that sends most.
 *
 * Address groups take turns, and an entry is only replaced when no other address group has more entries than its own. So
 * the owner of a prefix that one address floods is verified at the first try.
 *
 * Within that, a secret that was turned away before goes ahead of a new secret and is not replaced by it: an owner repeats
 * one secret, while most guesses are new. How often it was turned away does not count; otherwise a flood that repeats its
 * guesses would stay ahead of the owner.
 *
 * *Gotchas* A flood with few, repeated secrets gains nothing: a secret is verified once, and then its result is cached. An
 * owner who shares the flood's address competes with all its guesses.
 */
export interface Entry {
  readonly prefix: string
  /** the client's address group (`http/server/addresses.ts`) */
  readonly from: string
  /** whether its secret was turned away before, unverified */
  readonly turnedAway: boolean
}

/** An `asleep` entry waits for a time, not for a worker, so it does not count in `size`. */
export type Line = "clean" | "suspect" | "asleep"

export interface VerifyQueueOptions {
  /** maximal number of entries of one prefix, waiting or in work */
  readonly perPrefix: number
  /** maximal number of all entries, waiting or in work, without those asleep */
  readonly most: number
  /** 0 to 1: chooses the entry that is replaced */
  readonly random: () => number
}

export class VerifyQueue<E extends Entry> {
  readonly #options: VerifyQueueOptions
  readonly #lines: Record<Line, Array<E>> = { clean: [], suspect: [], asleep: [] }
  readonly #ofPrefix = new Map<string, number>()
  /** entries in work */
  readonly #working: Array<E> = []
  #servedLast: string | undefined

  constructor(options: VerifyQueueOptions) {
    this.#options = options
  }

  /** entries that wait for a worker or are in work */
  get size(): number {
    return this.#lines.clean.length + this.#lines.suspect.length + this.#working.length
  }

  get isFull(): boolean {
    return this.size >= this.#options.most
  }

  waits(line: Line): boolean {
    return this.#lines[line].length > 0
  }

  /** Adds an entry, which may replace others. `isIn`: whether it got a place. */
  enter(entry: E, line: Line): { readonly isIn: boolean; readonly replaced: ReadonlyArray<E> } {
    const { asleep, clean, suspect } = this.#lines
    const replaced: Array<E> = []
    const makesRoom = (entries: ReadonlyArray<E>): boolean => {
      const weakest = this.#weakest(entry, entries)
      if (weakest === undefined) return false
      for (const line of lines) this.#remove(weakest, line)
      replaced.push(weakest)
      return true
    }
    const isCrowded = (this.#ofPrefix.get(entry.prefix) ?? 0) >= this.#options.perPrefix
    const ofPrefix = () => [...clean, ...suspect, ...asleep, ...this.#working].filter(sameAs(entry))
    const isIn =
      (!isCrowded || makesRoom(ofPrefix())) && (line === "asleep" || !this.isFull || makesRoom(suspect))
    if (isIn) {
      this.#lines[line].push(entry)
      this.#ofPrefix.set(entry.prefix, (this.#ofPrefix.get(entry.prefix) ?? 0) + 1)
    }
    return { isIn, replaced }
  }

  /** Takes the next entry. It keeps its place until `leave`. */
  take(line: "clean" | "suspect"): E | undefined {
    const waiting = this.#lines[line]
    const first = line === "clean" ? waiting[0] : this.#nextSuspect
    if (first === undefined) return undefined
    waiting.splice(waiting.indexOf(first), 1)
    this.#working.push(first)
    this.#servedLast = first.from
    return first
  }

  /** Removes an entry that was taken. */
  leave(entry: E): void {
    const at = this.#working.indexOf(entry)
    if (at !== -1) this.#working.splice(at, 1)
    this.#free(entry)
  }

  /** Removes an entry that was asleep. Does nothing when it was replaced. */
  wake(entry: E): void {
    this.#remove(entry, "asleep")
  }

  get #nextSuspect(): E | undefined {
    const { suspect } = this.#lines
    const others = suspect.filter(({ from }) => from !== this.#servedLast)
    const next = others.length > 0 ? others : suspect
    return next.find(({ turnedAway }) => turnedAway) ?? next[0]
  }

  /** One of `entries` that waits and has a weaker claim than `newcomer`. */
  #weakest(newcomer: E, entries: ReadonlyArray<E>): E | undefined {
    const places = new Map([[newcomer.from, 1]])
    for (const { from } of entries) places.set(from, (places.get(from) ?? 0) + 1)
    const most = Math.max(...places.values())
    const waiting = entries.filter(
      (entry) => places.get(entry.from) === most && !this.#working.includes(entry)
    )
    const fresh = waiting.filter(({ turnedAway }) => !turnedAway)
    const isAhead = newcomer.turnedAway || places.get(newcomer.from) !== most
    const weakest = fresh.length > 0 || !isAhead ? fresh : waiting
    return weakest[Math.floor(this.#options.random() * weakest.length)]
  }

  #remove(entry: E, line: Line): void {
    const at = this.#lines[line].indexOf(entry)
    if (at === -1) return
    this.#lines[line].splice(at, 1)
    this.#free(entry)
  }

  #free({ prefix }: E): void {
    const left = (this.#ofPrefix.get(prefix) ?? 1) - 1
    if (left > 0) this.#ofPrefix.set(prefix, left)
    else this.#ofPrefix.delete(prefix)
  }
}

const lines = ["clean", "suspect", "asleep"] as const satisfies ReadonlyArray<Line>

const sameAs =
  ({ prefix }: Entry) =>
  (other: Entry): boolean =>
    other.prefix === prefix
