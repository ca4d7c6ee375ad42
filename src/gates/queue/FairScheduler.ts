/**
 * The rules of the queue: which request goes next, and what each tenant has used. It has no effects and no clock: each method
 * gets the time. The store in memory is this class. The script in Redis (`queue.lua`) does the same, and random calls of both
 * are compared (`test/contract/QueueStoreProperty.ts`).
 */
import type { Priority } from "../../domain/attributes.ts"
import { type Entry, FairLine } from "./FairLine.ts"
import { LiveReplicas, type Replica } from "./LiveReplicas.ts"
import { Average, LoadedModels, type ModelState } from "./LoadedModels.ts"
import {
  assumedTurnMs,
  type Beat,
  type Bounds,
  defaultTurnMaxMs,
  Full,
  Granted,
  type Held,
  lingerMsOf,
  maxRetryAfterS,
  type Message,
  type ModelUse,
  noticeableLoadMs,
  type Seen,
  type Ticket,
  Waiting
} from "./QueueStore.ts"

/** What goes next. `leaving`: models that make room for its own. `passes`: others wait for another model. */
interface Choice {
  readonly entry: Entry | undefined
  readonly leaving: ReadonlyArray<ModelState>
  readonly passes: boolean
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

export class FairScheduler {
  readonly #options: SchedulerOptions
  readonly #entries = new Map<string, Entry>()
  readonly #replicas: LiveReplicas
  readonly #lines: Record<Priority, FairLine> = { interactive: new FairLine(), batch: new FairLine() }
  readonly #models = new LoadedModels()
  #order: number
  /** when a batch request went last, or the first of those that wait came */
  #batchSince = 0
  /** how long the last requests had their places, without the loading of models */
  readonly #turnMs = new Average(assumedTurnMs)
  /** what the last requests used */
  readonly #used = new Average(1)
  #messages: Array<Message & { readonly replica: string }> = []

  /** The first place is given `graceMs` after `now`, unless `fresh`: then no request can have been lost. */
  constructor(options: SchedulerOptions, now: number, fresh: boolean) {
    this.#options = options
    this.#replicas = new LiveReplicas(now, fresh ? now : now + options.graceMs)
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
    const isDirect = this.waiting === 0 && this.#open(now, bounds)
    if (this.waiting >= bounds.depth && !isDirect) {
      const instead = ticket.priority === "interactive" && this.#lines.batch.waiting > 0
      const gone = this.#lines[instead ? "batch" : ticket.priority].crowded(ticket, instead)
      const retryAfterS = this.#retryAfterS(bounds)
      if (gone === undefined) return this.#outcome(new Full({ retryAfterS }))
      this.#remove(now, gone)
      this.#replicas.get(gone.replica)?.displaced.set(gone.ticket.id, retryAfterS)
      this.#messages.push({ replica: gone.replica, id: gone.ticket.id, retryAfterS })
    }
    const entry = this.#add(now, replica, ticket, (this.#order += 1), bounds)
    this.#dispatch(now, bounds)
    // A place was free, and another model must leave first.
    if (isDirect && !entry.running && bounds.depth === 0) {
      this.#remove(now, entry)
      return this.#outcome(new Full({ retryAfterS: this.#retryAfterS(bounds) }))
    }
    return this.#standing(entry)
  }

  leave(now: number, id: string, bounds: Bounds): Outcome<number> {
    const entry = this.#entries.get(id)
    if (entry !== undefined) {
      if (entry.running) this.#lines[entry.ticket.priority].correct(entry, 0)
      this.#remove(now, entry)
    }
    this.#settle(now, bounds)
    return this.#outcome(this.#retryAfterS(bounds))
  }

  end(now: number, id: string, used: number, bounds: Bounds, loadMs = -1): Outcome<number> {
    const entry = this.#entries.get(id)
    let loaded = 0
    if (entry?.running === true) {
      if (used > 0) {
        this.#lines[entry.ticket.priority].correct(entry, used)
        this.#used.add(used)
      }
      if (loadMs >= 0) loaded = this.#models.answered(now, entry.ticket.model, entry.loaded, loadMs, bounds)
      const lost = loadMs >= noticeableLoadMs ? loadMs : 0
      if (entry.startedAt !== undefined) this.#turnMs.add(Math.max(0, now - entry.startedAt - lost))
    }
    if (entry !== undefined) this.#remove(now, entry)
    this.#settle(now, bounds)
    return this.#outcome(loaded)
  }

  /** `peers`: the replicas that this one knew before a loss, itself too */
  beat(
    now: number,
    name: string,
    running: ReadonlyArray<string>,
    waiting: ReadonlyArray<string>,
    bounds: Bounds,
    seen?: Seen,
    peers: ReadonlyArray<string> = []
  ): Outcome<Beat> {
    const replica = this.#replica(now, name)
    const named = new Set([...running, ...waiting])
    for (const entry of this.#entriesOf(name)) {
      if (!named.has(entry.ticket.id) && entry.beat < replica.beats) this.#remove(now, entry)
    }
    for (const id of replica.displaced.keys()) if (!named.has(id)) replica.displaced.delete(id)
    replica.beats += 1
    const unknown = [...named].filter((id) => !this.#entries.has(id) && !replica.displaced.has(id))
    if (!this.#replicas.isOpen(now)) this.#replicas.report(replica, unknown.length === 0, peers)
    if (seen !== undefined) {
      // After a loss the turn of what is loaded begins anew: another load would cost more.
      const turnMs = this.#replicas.isOpen(now) ? 0 : (bounds.turnMaxMs ?? defaultTurnMaxMs)
      this.#models.see(now, seen, bounds, now + turnMs)
    }
    this.#settle(now, bounds)
    const granted = waiting.flatMap((id) => {
      const entry = this.#entries.get(id)
      return entry?.running === true ? [{ id, loaded: entry.loaded }] : []
    })
    return this.#outcome({
      messages: [...granted, ...[...replica.displaced].map(([id, retryAfterS]) => ({ id, retryAfterS }))],
      unknown,
      models: this.#uses(),
      changesInMs: this.#replicas.changesIn(now, name)
    })
  }

  restore(now: number, replica: string, held: ReadonlyArray<Held>, bounds: Bounds): Outcome<void> {
    for (const { order, ticket } of held) {
      if (this.#entries.has(ticket.id)) continue
      this.#order = Math.max(this.#order, order ?? 0)
      const entry = this.#add(now, replica, ticket, order ?? 0, bounds)
      // It has a place, and began before.
      if (order === undefined) {
        this.#start(now, entry, bounds, { leaving: [], passes: false })
        entry.startedAt = undefined
      }
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
  #standing({ loaded, order, running, ticket }: Entry): Outcome<Granted | Waiting> {
    this.#messages = this.#messages.filter(({ id }) => id !== ticket.id)
    return this.#outcome(running ? new Granted({ loaded }) : new Waiting({ order }))
  }

  #entriesOf(replica: string): ReadonlyArray<Entry> {
    return [...this.#entries.values()].filter((entry) => entry.replica === replica)
  }

  /** The replica, which is alive. */
  #replica(now: number, name: string): Replica {
    return this.#replicas.renew(name, now + this.#options.leaseMs)
  }

  /** The replicas that are alive; undefined after a loss, until all can be known again. */
  replicasAt(now: number): ReadonlyArray<string> | undefined {
    return this.#replicas.namesAt(now)
  }

  #add(now: number, replica: string, ticket: Ticket, order: number, bounds: Bounds): Entry {
    const { beats } = this.#replica(now, replica)
    const line = this.#lines[ticket.priority]
    if (ticket.priority === "batch" && line.waiting === 0) this.#batchSince = Math.max(this.#batchSince, now)
    const entry: Entry = {
      ticket,
      replica,
      order,
      beat: beats,
      running: false,
      startedAt: undefined,
      charged: 0,
      tenantTag: 0,
      keyTag: 0,
      loaded: false
    }
    this.#entries.set(ticket.id, entry)
    const mayBlock = !this.#models.of(ticket.model).resident && !this.#isBlocked(bounds)
    line.add(entry, () => (this.#order += 1))
    if (mayBlock && this.#isBlocked(bounds))
      this.#models.beginTurns(now + (bounds.turnMaxMs ?? defaultTurnMaxMs))
    return entry
  }

  /** Whether a request waits for a model that another one must leave for. */
  #isBlocked(bounds: Bounds): boolean {
    return Object.values(this.#lines).some(({ models }) =>
      models.keys().some((model) => this.#models.inTheWayOf(model, bounds, models).length > 0)
    )
  }

  #remove(now: number, entry: Entry): void {
    this.#entries.delete(entry.ticket.id)
    if (entry.running) this.#models.release(now, entry.ticket.model)
    else this.#lines[entry.ticket.priority].remove(entry)
  }

  #start(now: number, entry: Entry, bounds: Bounds, { leaving, passes }: Omit<Choice, "entry">): void {
    const { cost, model, priority } = entry.ticket
    for (const one of leaving) this.#models.unload(now, one)
    const load = leaving.length > 0 ? this.#loadTime(model, bounds) : 0
    this.#lines[priority].start(entry, Math.min(cost, this.#used.value), load, passes)
    entry.loaded = this.#models.start(now, model, bounds.turnMaxMs ?? defaultTurnMaxMs)
    entry.running = true
    entry.startedAt = now
    if (priority === "batch") this.#batchSince = now
  }

  /** Drops requests of dead replicas, then fills the places. */
  #settle(now: number, bounds: Bounds): void {
    for (const name of this.#replicas.bury(now))
      for (const entry of this.#entriesOf(name)) this.#remove(now, entry)
    this.#dispatch(now, bounds)
  }

  #open(now: number, { places }: Bounds): boolean {
    return this.#replicas.isOpen(now) && this.running < places
  }

  #dispatch(now: number, bounds: Bounds): void {
    while (this.#open(now, bounds)) {
      const choice = this.#choose(now, this.#nextLine(now), bounds)
      if (choice.entry === undefined) return
      this.#start(now, choice.entry, bounds, choice)
      const { loaded, replica, ticket } = choice.entry
      this.#messages.push({ replica, id: ticket.id, loaded })
    }
  }

  /** Batch requests go when nobody else waits, and one of them when none went for `batchEveryMs` while they waited. */
  #nextLine(now: number): FairLine {
    const { batch, interactive } = this.#lines
    const runs = [...this.#entries.values()].some(
      ({ running, ticket }) => running && ticket.priority === "batch"
    )
    const isDue = !runs && now - this.#batchSince >= this.#options.batchEveryMs
    return (isDue && batch.waiting > 0) || interactive.waiting === 0 ? batch : interactive
  }

  /**
   * The request that goes next: in the fair order, of those whose model is loaded, or for which no other must leave. When the
   * turn of the models in the way is over, they get no more requests, and once those they have are done, it is the first of the
   * requests that wait for another model.
   */
  #choose(now: number, line: FairLine, bounds: Bounds): Choice {
    const ways = new Map(
      [...line.models.keys()].map((model) => [model, this.#models.inTheWayOf(model, bounds, line.models)])
    )
    const hasRoom = (model: string) => ways.get(model)?.length === 0
    const passing = (entry: Entry | undefined): Choice => ({ entry, leaving: [], passes: true })
    const blocked = ways.values().every(({ length }) => length === 0)
      ? undefined
      : line.next((model) => !hasRoom(model))
    if (blocked === undefined) return { entry: line.next(), leaving: [], passes: false }
    const { model } = blocked.ticket
    const leaving = ways.get(model) ?? []
    if (!leaving.every((one) => this.#isOver(now, line, one, blocked, bounds)))
      return passing(line.next(hasRoom))
    for (const one of leaving) one.until = Math.min(one.until, now)
    if (leaving.every(({ running }) => running === 0)) return { entry: blocked, leaving, passes: true }
    // Others may use the places that those who wait for the model cannot use.
    const spare = bounds.places - this.running - (line.models.get(model) ?? 0)
    const stays = (name: string) =>
      this.#models.of(name).resident && leaving.every((one) => one.name !== name)
    return passing(spare > 0 ? line.next(stays) : undefined)
  }

  /**
   * Whether a model's turn is over: its time is, or its share is a load ahead of the one that waits, or nobody uses it and
   * nobody came back in a moment.
   */
  #isOver(now: number, line: FairLine, model: ModelState, blocked: Entry, bounds: Bounds): boolean {
    if (model.until <= now) return true
    const own = line.next((name) => name === model.name)
    const loadMs = this.#models.of(blocked.ticket.model).loadMs.value
    // A key is never ahead of itself: its models get a load time each.
    const { key, tenant } = blocked.ticket
    if (own?.ticket.key === key && own.ticket.tenant === tenant)
      return now >= model.until - (bounds.turnMaxMs ?? defaultTurnMaxMs) + loadMs
    if (own !== undefined) return line.lead(own, blocked) >= this.#loadTime(blocked.ticket.model, bounds)
    const lingerMs = lingerMsOf(loadMs)
    return model.running === 0 && now - model.changed >= lingerMs
  }

  #uses(): ReadonlyArray<ModelUse> {
    const waiting = [...this.#entries.values()].filter((entry) => !entry.running)
    const names = new Set([...this.#models.resident, ...waiting.map(({ ticket }) => ticket.model)])
    return [...names].map((name) => {
      const { resident, running } = this.#models.of(name)
      return {
        name,
        resident,
        running,
        waiting: waiting.filter(({ ticket }) => ticket.model === name).length
      }
    })
  }

  /** The tokens that the server would generate while it loads a model: the virtual time of a load. */
  #loadTime(model: string, { places }: Bounds): number {
    return (this.#models.of(model).loadMs.value * places * this.#used.value) / Math.max(1, this.#turnMs.value)
  }

  #retryAfterS({ places }: Bounds): number {
    const seconds = Math.ceil(((this.waiting + 1) * this.#turnMs.value) / places / 1000)
    return Math.min(maxRetryAfterS, Math.max(1, seconds))
  }
}
