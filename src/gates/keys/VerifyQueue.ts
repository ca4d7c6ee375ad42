/**
 * The queue for verifies, bounded in total and for each prefix.
 *
 * *Details* When the queue is full, a new entry replaces a random waiting one: of its own prefix when that has too many,
 * otherwise a suspect one. First come, first served would give all places to the client that sends most; this way the
 * owner of a flooded prefix gets a place with each try. A secret that was turned away before goes ahead of a new secret and
 * is not replaced by it: an owner repeats one secret, while most guesses are new. How often it was turned away does not
 * count; otherwise a flood that repeats its guesses would stay ahead of the owner.
 *
 * *Gotchas* A flood with few, repeated secrets gains nothing: a secret is verified once, and then its result is cached.
 */
export interface Entry {
  readonly prefix: string
  /** whether its secret was turned away before, unverified */
  readonly turnedAway: boolean
  /** called when another entry replaces it */
  readonly evicted: () => void
}

/** An `asleep` entry waits for a time, not for a worker, so it does not count in `size`. */
export type Line = "clean" | "suspect" | "asleep"

export interface VerifyQueueOptions {
  /** maximal number of entries of one prefix, waiting or in work */
  readonly perPrefix: number
  /** maximal number of all entries, waiting or in work, without those asleep */
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

  /** Adds an entry, which may replace another one. Returns whether it got a place. */
  enter(entry: E, line: Line): boolean {
    const { asleep, clean, suspect } = this.#lines
    const full = (this.#ofPrefix.get(entry.prefix) ?? 0) >= this.#options.perPrefix
    if (full && !this.#replace(entry, [...clean, ...suspect, ...asleep].filter(sameAs(entry)))) return false
    if (line !== "asleep" && this.isFull && !this.#replace(entry, suspect)) return false
    this.#lines[line].push(entry)
    this.#ofPrefix.set(entry.prefix, (this.#ofPrefix.get(entry.prefix) ?? 0) + 1)
    return true
  }

  /** Takes the next entry. It keeps its place until `leave`. */
  take(line: "clean" | "suspect"): E | undefined {
    const waiting = this.#lines[line]
    const first =
      (line === "suspect" ? waiting.find(({ turnedAway }) => turnedAway) : undefined) ?? waiting[0]
    if (first === undefined) return undefined
    waiting.splice(waiting.indexOf(first), 1)
    this.#working += 1
    return first
  }

  /** Removes an entry that was taken. */
  leave(entry: E): void {
    this.#working -= 1
    this.#free(entry)
  }

  /** Removes an entry that was asleep. Does nothing when it was replaced. */
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
