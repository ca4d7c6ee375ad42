/**
 * The rules of the queue: which request goes next, and what each tenant has used. It has no effects and no clock: each method
 * gets the time. The store in memory is this class. The script in Redis (`queue.lua`) does the same, and random calls of both
 * are compared (`test/contract/QueueStoreProperty.ts`).
 */
import type { Priority } from "../../domain/settings.ts"
import { type Entry, FairLine } from "./FairLine.ts"
import {
  assumedTurnMs,
  type Beat,
  type Bounds,
  Full,
  Granted,
  type Held,
  maxRetryAfterS,
  type Message,
  type Ticket,
  turnsRemembered,
  Waiting
} from "./QueueStore.ts"

interface Replica {
  leaseEnd: number
  beats: number
  /** displaced requests that it may not know of, with their `Retry-After` */
  readonly displaced: Map<string, number>
}

export interface SchedulerOptions {
  readonly leaseMs: number
  readonly graceMs: number
  readonly batchEveryMs: number
}

/** The answer to a call, and the messages about other requests that it causes. */
export interface Outcome<A> {
  readonly answer: A
  readonly messages: ReadonlyArray<Message & { readonly replica: string }>
}

/** The average of about the last `turnsRemembered` figures. It starts as their plain mean, so that the first count in full. */
class Average {
  #count = 0
  #mean: number

  /** `assumed`: before the first figure */
  constructor(assumed: number) {
    this.#mean = assumed
  }

  get value(): number {
    return this.#mean
  }

  add(figure: number): void {
    this.#count = Math.min(this.#count + 1, turnsRemembered)
    this.#mean = this.#count === 1 ? figure : this.#mean + (figure - this.#mean) / this.#count
  }
}

export class FairScheduler {
  readonly #options: SchedulerOptions
  readonly #entries = new Map<string, Entry>()
  readonly #replicas = new Map<string, Replica>()
  readonly #lines: Record<Priority, FairLine> = { interactive: new FairLine(), batch: new FairLine() }
  readonly #opensAt: number
  #order: number
  #lastBatchAt = Number.NEGATIVE_INFINITY
  /** how long the last requests had their places */
  readonly #turnMs = new Average(assumedTurnMs)
  /** what the last requests used */
  readonly #used = new Average(1)
  #messages: Array<Message & { readonly replica: string }> = []

  /** The first place is given `graceMs` after `now`, unless `fresh`: then no request can have been lost. */
  constructor(options: SchedulerOptions, now: number, fresh: boolean) {
    this.#options = options
    this.#opensAt = fresh ? now : now + options.graceMs
    // Restored requests came before all new ones, and keep their order.
    this.#order = fresh ? 0 : Math.floor(now * 1000)
  }

  /** requests that have a place */
  get running(): number {
    return this.#entries.size - this.waiting
  }

  /** requests that wait */
  get waiting(): number {
    return this.#lines.interactive.waiting + this.#lines.batch.waiting
  }

  enter(now: number, replica: string, ticket: Ticket, bounds: Bounds): Outcome<Granted | Waiting | Full> {
    this.#settle(now, bounds)
    const known = this.#entries.get(ticket.id)
    if (known !== undefined) return this.#standing(known)
    // A request that can go at once does not wait, so the depth does not matter.
    if (this.waiting >= bounds.depth && !(this.waiting === 0 && this.#open(now, bounds))) {
      const instead = ticket.priority === "interactive" && this.#lines.batch.waiting > 0
      const gone = this.#lines[instead ? "batch" : ticket.priority].crowded(ticket, instead)
      const retryAfterS = this.#retryAfterS(bounds)
      if (gone === undefined) return this.#outcome(new Full({ retryAfterS }))
      this.#remove(gone)
      this.#replicas.get(gone.replica)?.displaced.set(gone.ticket.id, retryAfterS)
      this.#messages.push({ replica: gone.replica, id: gone.ticket.id, retryAfterS })
    }
    const entry = this.#add(now, replica, ticket, (this.#order += 1))
    this.#dispatch(now, bounds)
    return this.#standing(entry)
  }

  leave(now: number, id: string, bounds: Bounds): Outcome<number> {
    const entry = this.#entries.get(id)
    if (entry !== undefined) {
      if (entry.running) this.#lines[entry.ticket.priority].correct(entry, 0)
      this.#remove(entry)
    }
    this.#settle(now, bounds)
    return this.#outcome(this.#retryAfterS(bounds))
  }

  end(now: number, id: string, used: number, bounds: Bounds): Outcome<void> {
    const entry = this.#entries.get(id)
    if (entry?.running === true) {
      if (used > 0) {
        this.#lines[entry.ticket.priority].correct(entry, used)
        this.#used.add(used)
      }
      if (entry.startedAt !== undefined) this.#turnMs.add(Math.max(0, now - entry.startedAt))
    }
    if (entry !== undefined) this.#remove(entry)
    this.#settle(now, bounds)
    return this.#outcome(undefined)
  }

  beat(
    now: number,
    name: string,
    running: ReadonlyArray<string>,
    waiting: ReadonlyArray<string>,
    bounds: Bounds
  ): Outcome<Beat> {
    const replica = this.#replica(now, name)
    const named = new Set([...running, ...waiting])
    for (const entry of this.#entriesOf(name)) {
      if (!named.has(entry.ticket.id) && entry.beat < replica.beats) this.#remove(entry)
    }
    for (const id of replica.displaced.keys()) if (!named.has(id)) replica.displaced.delete(id)
    replica.beats += 1
    this.#settle(now, bounds)
    return this.#outcome({
      granted: waiting.filter((id) => this.#entries.get(id)?.running === true),
      displaced: [...replica.displaced].map(([id, retryAfterS]) => ({ id, retryAfterS })),
      unknown: [...named].filter((id) => !this.#entries.has(id) && !replica.displaced.has(id))
    })
  }

  restore(now: number, replica: string, held: ReadonlyArray<Held>, bounds: Bounds): Outcome<void> {
    for (const { order, ticket } of held) {
      if (this.#entries.has(ticket.id)) continue
      this.#order = Math.max(this.#order, order ?? 0)
      const entry = this.#add(now, replica, ticket, order ?? 0)
      // It has a place, and began before.
      if (order === undefined) this.#start(now, entry, undefined)
    }
    this.#settle(now, bounds)
    return this.#outcome(undefined)
  }

  #outcome<A>(answer: A): Outcome<A> {
    const messages = this.#messages
    this.#messages = []
    return { answer, messages }
  }

  /** Where a request stands. Its caller reads it in the answer, and needs no message. */
  #standing({ order, running, ticket }: Entry): Outcome<Granted | Waiting> {
    this.#messages = this.#messages.filter(({ id }) => id !== ticket.id)
    return this.#outcome(running ? new Granted() : new Waiting({ order }))
  }

  #entriesOf(replica: string): ReadonlyArray<Entry> {
    return [...this.#entries.values()].filter((entry) => entry.replica === replica)
  }

  /** The replica, which is alive. */
  #replica(now: number, name: string): Replica {
    const replica = this.#replicas.get(name) ?? { leaseEnd: 0, beats: 0, displaced: new Map() }
    replica.leaseEnd = now + this.#options.leaseMs
    this.#replicas.set(name, replica)
    return replica
  }

  #add(now: number, replica: string, ticket: Ticket, order: number): Entry {
    const { beats } = this.#replica(now, replica)
    const entry: Entry = {
      ticket,
      replica,
      order,
      beat: beats,
      running: false,
      startedAt: undefined,
      charged: 0,
      tenantTag: 0,
      keyTag: 0
    }
    this.#entries.set(ticket.id, entry)
    this.#lines[ticket.priority].add(entry, () => (this.#order += 1))
    return entry
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.ticket.id)
    if (!entry.running) this.#lines[entry.ticket.priority].remove(entry)
  }

  #start(now: number, entry: Entry, startedAt: number | undefined): void {
    const { cost, priority } = entry.ticket
    this.#lines[priority].start(entry, Math.min(cost, this.#used.value))
    entry.running = true
    entry.startedAt = startedAt
    if (priority === "batch") this.#lastBatchAt = now
  }

  /** Drops requests of dead replicas, then fills the places. */
  #settle(now: number, bounds: Bounds): void {
    for (const [name, { leaseEnd }] of this.#replicas) {
      if (leaseEnd > now) continue
      for (const entry of this.#entriesOf(name)) this.#remove(entry)
      this.#replicas.delete(name)
    }
    this.#dispatch(now, bounds)
  }

  #open(now: number, { places }: Bounds): boolean {
    return now >= this.#opensAt && this.running < places
  }

  #dispatch(now: number, bounds: Bounds): void {
    while (this.#open(now, bounds)) {
      const entry = this.#next(now)
      if (entry === undefined) return
      this.#start(now, entry, now)
      this.#messages.push({ replica: entry.replica, id: entry.ticket.id })
    }
  }

  /** Batch requests go when nobody else waits, and one of them every `batchEveryMs`. */
  #next(now: number): Entry | undefined {
    const { batch, interactive } = this.#lines
    const runs = [...this.#entries.values()].some(
      ({ running, ticket }) => running && ticket.priority === "batch"
    )
    const isDue = !runs && now - this.#lastBatchAt >= this.#options.batchEveryMs
    return (isDue ? batch.next() : undefined) ?? interactive.next() ?? batch.next()
  }

  #retryAfterS({ places }: Bounds): number {
    const seconds = Math.ceil(((this.waiting + 1) * this.#turnMs.value) / places / 1000)
    return Math.min(maxRetryAfterS, Math.max(1, seconds))
  }
}
