/**
 * Who waits for a verify, bounded in all and for each prefix.
 *
 * *Details* When there is no place left, a newcomer takes the place of a random entry that waits: of its own prefix
 * when that has too many, else of those that are suspect. First come, first served would give every place to whoever
 * asks most often; this way the owner of a prefix that somebody floods has a place each time he asks. A secret that
 * was turned away before is ahead of one that was not, and keeps its place against it: an owner asks with one secret
 * again and again, while most guesses are new secrets. How often it was turned away does not matter, or a flood that
 * repeats its guesses would stay ahead of the owner.
 *
 * *Gotchas* Whoever floods with few secrets, each of them often, gains nothing: a secret is verified once, and then its
 * answer is remembered.
 */
export interface Entry {
  readonly prefix: string
  /** its secret was turned away before without being verified */
  readonly turnedAway: boolean
  /** its place was given to another */
  readonly evicted: () => void
}

/** `asleep` waits for a time and not for a worker, so it does not count in `size`. */
export type Line = "clean" | "suspect" | "asleep"

export interface VerifyQueueOptions {
  /** entries of one prefix, waiting or in work */
  readonly perPrefix: number
  /** entries in all, waiting or in work, without those asleep */
  readonly most: number
}

export class VerifyQueue<E extends Entry> {
  readonly #options: VerifyQueueOptions
  readonly #lines: Record<Line, Array<E>> = { clean: [], suspect: [], asleep: [] }
  readonly #ofPrefix = new Map<string, number>()
  #working = 0

  constructor(options: VerifyQueueOptions) {
    this.#options = options
  }

  /** entries that wait for a worker or are in work */
  get size(): number {
    return this.#lines.clean.length + this.#lines.suspect.length + this.#working
  }

  get isFull(): boolean {
    return this.size >= this.#options.most
  }

  waits(line: Line): boolean {
    return this.#lines[line].length > 0
  }

  /** Whether the entry got a place; another may have lost its own for it. */
  enter(entry: E, line: Line): boolean {
    const { asleep, clean, suspect } = this.#lines
    const full = (this.#ofPrefix.get(entry.prefix) ?? 0) >= this.#options.perPrefix
    if (full && !this.#replace(entry, [...clean, ...suspect, ...asleep].filter(sameAs(entry)))) return false
    if (line !== "asleep" && this.isFull && !this.#replace(entry, suspect)) return false
    this.#lines[line].push(entry)
    this.#ofPrefix.set(entry.prefix, (this.#ofPrefix.get(entry.prefix) ?? 0) + 1)
    return true
  }

  /** The entry whose turn it is; it keeps its place until `leave`. */
  take(line: "clean" | "suspect"): E | undefined {
    const waiting = this.#lines[line]
    const first =
      (line === "suspect" ? waiting.find(({ turnedAway }) => turnedAway) : undefined) ?? waiting[0]
    if (first === undefined) return undefined
    waiting.splice(waiting.indexOf(first), 1)
    this.#working += 1
    return first
  }

  /** An entry that was taken is done with. */
  leave(entry: E): void {
    this.#working -= 1
    this.#free(entry)
  }

  /** An entry that was asleep is done with; one that lost its place is left alone. */
  wake(entry: E): void {
    this.#remove(entry, "asleep")
  }

  #replace(newcomer: E, waiting: ReadonlyArray<E>): boolean {
    const fresh = waiting.filter(({ turnedAway }) => !turnedAway)
    const weakest = fresh.length > 0 || !newcomer.turnedAway ? fresh : waiting
    const victim = weakest[Math.floor(Math.random() * weakest.length)]
    if (victim === undefined) return false
    for (const line of lines) this.#remove(victim, line)
    victim.evicted()
    return true
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
