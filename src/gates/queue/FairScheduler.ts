/**
 * The rules of the queue as a data structure: which request goes next, and what each tenant has used. It has no
 * effects and no clock: each method gets the time. The memory twin is this class. The Lua script of the Redis twin
 * does the same, and one property suite compares both with a plain model.
 */
import type { Priority } from "../../domain/settings.ts"
import { crowded, type Entry, first, forgotten, type Line } from "./flows.ts"
import {
  Granted,
  Full,
  type Bounds,
  type Displaced,
  type Held,
  assumedTurnMs,
  maxRetryAfterS,
  turnsRemembered,
  type Ticket,
  Waiting
} from "./QueueStore.ts"

interface Replica {
  leaseEnd: number
  beats: number
  readonly ids: Set<string>
  /** displaced requests that it may not know of, with their `Retry-After` */
  readonly displaced: Map<string, number>
}

export interface SchedulerOptions {
  readonly leaseMs: number
  readonly graceMs: number
  readonly batchEveryMs: number
}

/** A request that got a place because of another call. */
export interface Grant {
  readonly id: string
  readonly replica: string
}

/** A request that another one took the place of in the queue. */
export interface Displacement extends Displaced {
  readonly replica: string
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
  readonly #lines: Record<Priority, Line> = {
    interactive: { time: 0, tenants: new Map(), waiting: 0 },
    batch: { time: 0, tenants: new Map(), waiting: 0 }
  }
  #order = 0
  #running = 0
  #batchRunning = 0
  #lastBatchAt = Number.NEGATIVE_INFINITY
  /** how long the last requests had their places */
  readonly #turnMs = new Average(assumedTurnMs)
  /** what the last requests used */
  readonly #used = new Average(1)
  readonly #opensAt: number

  /** The first place is given `graceMs` after `now`, unless `fresh`: then no request can have been lost. */
  constructor(options: SchedulerOptions, now: number, fresh: boolean) {
    this.#options = options
    this.#opensAt = fresh ? now : now + options.graceMs
    // Restored requests came before all new ones, and keep their order.
    this.#order = fresh ? 0 : Math.floor(now * 1000)
  }

  /** requests that have a place */
  get running(): number {
    return this.#running
  }

  /** requests that wait */
  get waiting(): number {
    return this.#entries.size - this.#running
  }

  enter(
    now: number,
    replica: string,
    ticket: Ticket,
    bounds: Bounds
  ): {
    readonly answer: Granted | Waiting | Full
    readonly grants: ReadonlyArray<Grant>
    readonly displaced?: Displacement
  } {
    const before = this.#settle(now, bounds).filter(({ id }) => id !== ticket.id)
    const existing = this.#entries.get(ticket.id)
    if (existing !== undefined) return { answer: standing(existing), grants: before }
    let displaced: Displacement | undefined
    // A request that can go at once does not wait, so the depth does not matter.
    if (this.waiting >= bounds.depth && !(this.waiting === 0 && this.#open(now, bounds))) {
      const gone = crowded(this.#lines, ticket)
      const retryAfterS = this.#retryAfterS(bounds)
      if (gone === undefined) return { answer: new Full({ retryAfterS }), grants: before }
      this.#remove(gone)
      this.#replicas.get(gone.replica)?.displaced.set(gone.ticket.id, retryAfterS)
      displaced = { id: gone.ticket.id, replica: gone.replica, retryAfterS }
    }
    const entry = this.#add(now, replica, ticket, ++this.#order)
    const grants = this.#dispatch(now, bounds).filter(({ id }) => id !== ticket.id)
    return {
      answer: standing(entry),
      grants: [...before, ...grants],
      ...(displaced === undefined ? {} : { displaced })
    }
  }

  leave(
    now: number,
    id: string,
    bounds: Bounds
  ): { readonly retryAfterS: number; readonly grants: ReadonlyArray<Grant> } {
    const entry = this.#entries.get(id)
    if (entry !== undefined) {
      if (entry.running) this.#correct(entry, 0)
      this.#remove(entry)
    }
    const grants = this.#settle(now, bounds)
    return { retryAfterS: this.#retryAfterS(bounds), grants }
  }

  end(now: number, id: string, used: number, bounds: Bounds): ReadonlyArray<Grant> {
    const entry = this.#entries.get(id)
    if (entry !== undefined) {
      if (entry.running) {
        if (used > 0) {
          this.#correct(entry, used)
          this.#used.add(used)
        }
        if (entry.startedAt !== undefined) this.#turnMs.add(Math.max(0, now - entry.startedAt))
      }
      this.#remove(entry)
    }
    return this.#settle(now, bounds)
  }

  beat(
    now: number,
    name: string,
    running: ReadonlyArray<string>,
    waiting: ReadonlyArray<string>,
    bounds: Bounds
  ): {
    readonly granted: ReadonlyArray<string>
    readonly displaced: ReadonlyArray<Displaced>
    readonly unknown: ReadonlyArray<string>
    readonly grants: ReadonlyArray<Grant>
  } {
    const replica = this.#replica(now, name)
    const named = new Set([...running, ...waiting])
    for (const id of replica.ids) {
      const entry = this.#entries.get(id)
      if (entry !== undefined && !named.has(id) && entry.beat < replica.beats) this.#remove(entry)
    }
    for (const id of replica.displaced.keys()) if (!named.has(id)) replica.displaced.delete(id)
    replica.beats += 1
    const grants = this.#settle(now, bounds)
    return {
      granted: waiting.filter((id) => this.#entries.get(id)?.running === true),
      displaced: [...replica.displaced].map(([id, retryAfterS]) => ({ id, retryAfterS })),
      unknown: [...named].filter((id) => !this.#entries.has(id) && !replica.displaced.has(id)),
      grants
    }
  }

  restore(now: number, replica: string, held: ReadonlyArray<Held>, bounds: Bounds): ReadonlyArray<Grant> {
    for (const { order, ticket } of held) {
      if (this.#entries.has(ticket.id)) continue
      this.#order = Math.max(this.#order, order ?? 0)
      const entry = this.#add(now, replica, ticket, order ?? 0)
      if (order !== undefined) continue
      this.#start(now, entry)
      entry.startedAt = undefined
    }
    return this.#settle(now, bounds)
  }

  /** Drops requests of dead replicas, then fills the places. */
  #settle(now: number, bounds: Bounds): ReadonlyArray<Grant> {
    for (const [name, replica] of this.#replicas) {
      if (replica.leaseEnd > now) continue
      for (const id of replica.ids) {
        const entry = this.#entries.get(id)
        if (entry !== undefined) this.#remove(entry)
      }
      this.#replicas.delete(name)
    }
    return this.#dispatch(now, bounds)
  }

  #replica(now: number, name: string): Replica {
    const existing = this.#replicas.get(name)
    const leaseEnd = now + this.#options.leaseMs
    if (existing !== undefined) {
      existing.leaseEnd = leaseEnd
      return existing
    }
    const replica = { leaseEnd, beats: 0, ids: new Set<string>(), displaced: new Map<string, number>() }
    this.#replicas.set(name, replica)
    return replica
  }

  #open(now: number, { places }: Bounds): boolean {
    return now >= this.#opensAt && this.#running < places
  }

  #add(now: number, name: string, ticket: Ticket, order: number): Entry {
    const replica = this.#replica(now, name)
    const entry: Entry = {
      ticket,
      replica: name,
      order,
      running: false,
      charged: 0,
      startedAt: undefined,
      beat: replica.beats,
      tenantTag: 0,
      keyTag: 0
    }
    replica.ids.add(ticket.id)
    this.#entries.set(ticket.id, entry)
    const line = this.#lines[ticket.priority]
    line.waiting += 1
    let tenant = line.tenants.get(ticket.tenant)
    if (tenant === undefined || forgotten(tenant, line.time)) {
      tenant = { tag: line.time, since: 0, backlogged: false, time: 0, keys: new Map() }
      line.tenants.set(ticket.tenant, tenant)
    }
    if (!tenant.backlogged) {
      tenant.tag = Math.max(tenant.tag, line.time)
      tenant.since = ++this.#order
      tenant.backlogged = true
    }
    let key = tenant.keys.get(ticket.key)
    if (key === undefined || forgotten(key, tenant.time)) {
      key = { tag: tenant.time, since: 0, backlogged: false, line: [] }
      tenant.keys.set(ticket.key, key)
    }
    if (!key.backlogged) {
      key.tag = Math.max(key.tag, tenant.time)
      key.since = ++this.#order
      key.backlogged = true
    }
    // Nearly always the last one: only restored requests come out of order.
    let at = key.line.length
    while (at > 0 && (key.line[at - 1]?.order ?? 0) > order) at -= 1
    key.line.splice(at, 0, entry)
    return entry
  }

  /** Removes a waiting request; its flows may become idle. */
  #withdraw(entry: Entry): void {
    const line = this.#lines[entry.ticket.priority]
    const tenant = line.tenants.get(entry.ticket.tenant)
    const key = tenant?.keys.get(entry.ticket.key)
    if (tenant === undefined || key === undefined) return
    const at = key.line.indexOf(entry)
    if (at === -1) return
    key.line.splice(at, 1)
    line.waiting -= 1
    key.backlogged = key.line.length > 0
    tenant.backlogged = [...tenant.keys.values()].some(({ backlogged }) => backlogged)
  }

  /** Takes a place and charges its flows. */
  #start(now: number, entry: Entry): void {
    const { cost, priority, weight } = entry.ticket
    entry.charged = Math.min(cost, this.#used.value)
    const line = this.#lines[priority]
    const tenant = line.tenants.get(entry.ticket.tenant)
    const key = tenant?.keys.get(entry.ticket.key)
    if (tenant === undefined || key === undefined) return
    line.time = Math.max(line.time, tenant.tag)
    tenant.time = Math.max(tenant.time, key.tag)
    tenant.tag += entry.charged / weight
    key.tag += entry.charged
    entry.tenantTag = tenant.tag
    entry.keyTag = key.tag
    this.#withdraw(entry)
    entry.running = true
    entry.startedAt = now
    this.#running += 1
    if (priority === "batch") {
      this.#batchRunning += 1
      this.#lastBatchAt = now
    }
    this.#prune(line)
  }

  #prune(line: Line): void {
    if (line.tenants.size <= 64 + 2 * line.waiting) return
    for (const [name, tenant] of line.tenants) if (forgotten(tenant, line.time)) line.tenants.delete(name)
  }

  /** Replaces what was charged at the start by what was used. */
  #correct(entry: Entry, used: number): void {
    const { key: keyName, priority, tenant: tenantName, weight } = entry.ticket
    const by = used - entry.charged
    const line = this.#lines[priority]
    const tenant = line.tenants.get(tenantName)
    if (tenant !== undefined && !forgotten(tenant, line.time)) {
      tenant.tag += by / weight
      const key = tenant.keys.get(keyName)
      if (key !== undefined && !forgotten(key, tenant.time)) {
        key.tag += by
      } else if (entry.keyTag + by > tenant.time) {
        const tag = entry.keyTag + by
        tenant.keys.set(keyName, { tag, since: 0, backlogged: false, line: [] })
      }
      return
    }
    const tag = entry.tenantTag + by / weight
    if (tag > line.time) {
      line.tenants.set(tenantName, { tag, since: 0, backlogged: false, time: 0, keys: new Map() })
    }
  }

  #remove(entry: Entry): void {
    if (entry.running) {
      this.#running -= 1
      if (entry.ticket.priority === "batch") this.#batchRunning -= 1
    } else {
      this.#withdraw(entry)
    }
    this.#entries.delete(entry.ticket.id)
    this.#replicas.get(entry.replica)?.ids.delete(entry.ticket.id)
  }

  #dispatch(now: number, bounds: Bounds): ReadonlyArray<Grant> {
    const grants: Array<Grant> = []
    while (this.#open(now, bounds)) {
      const line = this.#nextLine(now)
      const tenant = line === undefined ? undefined : first(line.tenants)
      const key = tenant === undefined ? undefined : first(tenant[1].keys)
      const entry = key?.[1].line[0]
      if (entry === undefined) break
      this.#start(now, entry)
      grants.push({ id: entry.ticket.id, replica: entry.replica })
    }
    return grants
  }

  #nextLine(now: number): Line | undefined {
    const { batch, interactive } = this.#lines
    const batchIsDue = this.#batchRunning === 0 && now - this.#lastBatchAt >= this.#options.batchEveryMs
    if (batch.waiting > 0 && (interactive.waiting === 0 || batchIsDue)) return batch
    return interactive.waiting > 0 ? interactive : undefined
  }

  #retryAfterS({ places }: Bounds): number {
    const seconds = Math.ceil(((this.waiting + 1) * this.#turnMs.value) / places / 1000)
    return Math.min(maxRetryAfterS, Math.max(1, seconds))
  }
}

const standing = (entry: Entry): Granted | Waiting =>
  entry.running ? new Granted() : new Waiting({ order: entry.order })
