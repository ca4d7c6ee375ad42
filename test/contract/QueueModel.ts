/** The queue as one list, every decision computed anew: slow, short, and easy to believe. */
import {
  assumedTurnMs,
  type Bounds,
  type Displaced,
  type Held,
  maxRetryAfterS,
  type Ticket,
  turnsRemembered
} from "../../src/gates/queue/QueueStore.ts"

interface Entry {
  readonly ticket: Ticket
  readonly replica: string
  order: number
  running: boolean
  startedAt: number | undefined
  charged: number
  readonly beat: number
  tenantTag: number
  keyTag: number
}

interface Flow {
  tag: number
  since: number
}

interface Options {
  readonly leaseMs: number
  readonly graceMs: number
  readonly batchEveryMs: number
}

export class QueueModel {
  readonly #options: Options
  #entries: Array<Entry> = []
  #replicas = new Map<string, { leaseEnd: number; beats: number; displaced: Map<string, number> }>()
  /** `line`, `line/tenant`: virtual times; a tenant's is forgotten with the tenant */
  #times = new Map<string, number>()
  /** `line/tenant`, `line/tenant/key` */
  #flows = new Map<string, Flow>()
  #opensAt: number | undefined
  #lastBatchAt = Number.NEGATIVE_INFINITY
  #count = 0
  #turns = 0
  #turnMs = 0
  #counted = 0
  #used = 1
  #fresh = true

  constructor(options: Options) {
    this.#options = options
  }

  isRunning(id: string): boolean {
    return this.#find(id)?.running === true
  }

  unknown(name: string, ids: ReadonlyArray<string>): ReadonlyArray<string> {
    const displaced = this.#replicas.get(name)?.displaced
    return ids.filter((id) => this.#find(id) === undefined && displaced?.has(id) !== true).sort()
  }

  displaced(name: string): ReadonlyArray<Displaced> {
    return [...(this.#replicas.get(name)?.displaced ?? [])].map(([id, retryAfterS]) => ({ id, retryAfterS }))
  }

  setOrder(id: string, order: number): void {
    const entry = this.#find(id)
    if (entry !== undefined) entry.order = order
  }

  clear(): void {
    this.#entries = []
    this.#replicas = new Map()
    this.#times = new Map()
    this.#flows = new Map()
    this.#opensAt = undefined
    this.#lastBatchAt = Number.NEGATIVE_INFINITY
    this.#fresh = false
    this.#turns = 0
    this.#turnMs = 0
    this.#counted = 0
    this.#used = 1
  }

  retryAfterS({ places }: Bounds): number {
    const waiting = this.#entries.filter(({ running }) => !running).length
    const turnMs = this.#turns === 0 ? assumedTurnMs : this.#turnMs
    return Math.min(maxRetryAfterS, Math.max(1, Math.ceil(((waiting + 1) * turnMs) / places / 1000)))
  }

  enter(now: number, replica: string, ticket: Ticket, bounds: Bounds): "granted" | "waiting" | "full" {
    this.#settle(now, bounds)
    const waiting = this.#entries.filter(({ running }) => !running).length
    if (waiting >= bounds.depth && !(waiting === 0 && this.#open(now, bounds))) {
      const gone = this.#crowded(ticket)
      if (gone === undefined) return "full"
      this.#replicas.get(gone.replica)?.displaced.set(gone.ticket.id, this.retryAfterS(bounds))
      this.#drop(gone)
    }
    this.#add(now, replica, ticket, Number.MAX_SAFE_INTEGER)
    this.#dispatch(now, bounds)
    return this.isRunning(ticket.id) ? "granted" : "waiting"
  }

  leave(now: number, id: string, bounds: Bounds): void {
    const entry = this.#find(id)
    if (entry?.running === true) this.#correct(entry, 0)
    this.#drop(entry)
    this.#settle(now, bounds)
  }

  end(now: number, id: string, used: number, bounds: Bounds): void {
    const entry = this.#find(id)
    if (entry?.running === true) {
      if (used > 0) {
        this.#correct(entry, used)
        this.#counted = Math.min(this.#counted + 1, turnsRemembered)
        this.#used = this.#counted === 1 ? used : this.#used + (used - this.#used) / this.#counted
      }
      if (entry.startedAt !== undefined) {
        this.#turns = Math.min(this.#turns + 1, turnsRemembered)
        const turnMs = now - entry.startedAt
        this.#turnMs = this.#turns === 1 ? turnMs : this.#turnMs + (turnMs - this.#turnMs) / this.#turns
      }
    }
    this.#drop(entry)
    this.#settle(now, bounds)
  }

  beat(now: number, name: string, ids: ReadonlyArray<string>, bounds: Bounds): void {
    this.#touchState(now)
    const replica = this.#touch(now, name)
    for (const entry of this.#entries.filter((one) => one.replica === name && one.beat < replica.beats)) {
      if (!ids.includes(entry.ticket.id)) this.#drop(entry)
    }
    for (const id of replica.displaced.keys()) if (!ids.includes(id)) replica.displaced.delete(id)
    replica.beats += 1
    this.#settle(now, bounds)
  }

  restore(now: number, replica: string, held: ReadonlyArray<Held>, bounds: Bounds): void {
    for (const { order, ticket } of held) {
      if (this.#find(ticket.id) !== undefined) continue
      const entry = this.#add(now, replica, ticket, order ?? 0)
      if (order !== undefined) continue
      this.#start(now, entry)
      entry.startedAt = undefined
    }
    this.#settle(now, bounds)
  }

  /** Of the tenant, and then the key, with the most waiting requests the newest one. */
  #crowded({ key, priority, tenant }: Ticket): Entry | undefined {
    const batch = this.#waitingOf("batch")
    const instead = priority === "interactive" && batch.length > 0
    const waiting = instead ? batch : this.#waitingOf(priority)
    const most = (names: ReadonlyArray<string>): readonly [string, number] => {
      const counts = new Map<string, number>()
      for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1)
      return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? 1 : -1))[0] ?? ["", 0]
    }
    const [largest, count] = most(waiting.map((one) => one.ticket.tenant))
    const own = waiting.filter((one) => one.ticket.tenant === tenant)
    const other = instead || count > own.length + 1
    const from = other ? waiting.filter((one) => one.ticket.tenant === largest) : own
    const [crowdedKey, keyCount] = most(from.map((one) => one.ticket.key))
    if (!other && keyCount <= own.filter((one) => one.ticket.key === key).length + 1) return undefined
    return from.filter((one) => one.ticket.key === crowdedKey).sort((a, b) => b.order - a.order)[0]
  }

  #find(id: string): Entry | undefined {
    return this.#entries.find(({ ticket }) => ticket.id === id)
  }

  #touchState(now: number): void {
    this.#opensAt ??= this.#fresh ? now : now + this.#options.graceMs
  }

  #touch(now: number, name: string) {
    const replica = this.#replicas.get(name) ?? {
      leaseEnd: 0,
      beats: 0,
      displaced: new Map<string, number>()
    }
    replica.leaseEnd = now + this.#options.leaseMs
    this.#replicas.set(name, replica)
    return replica
  }

  #open(now: number, { places }: Bounds): boolean {
    return now >= (this.#opensAt ?? now) && this.#entries.filter(({ running }) => running).length < places
  }

  #settle(now: number, bounds: Bounds): void {
    this.#touchState(now)
    for (const [name, { leaseEnd }] of this.#replicas) {
      if (leaseEnd > now) continue
      for (const entry of this.#entries.filter(({ replica }) => replica === name)) this.#drop(entry)
      this.#replicas.delete(name)
    }
    this.#dispatch(now, bounds)
  }

  #waitingOf(prefix: string): ReadonlyArray<Entry> {
    return this.#entries.filter(
      ({ running, ticket }) =>
        !running && `${ticket.priority}/${ticket.tenant}/${ticket.key}/`.startsWith(`${prefix}/`)
    )
  }

  /** The flow, made anew at the virtual time when it is not ahead of it. */
  #flow(name: string, time: number): Flow {
    const known = this.#flows.get(name)
    if (known !== undefined && (this.#waitingOf(name).length > 0 || known.tag > time)) return known
    const flow = { tag: time, since: 0 }
    this.#flows.set(name, flow)
    return flow
  }

  #names({ key, priority, tenant }: Ticket): readonly [string, string] {
    return [`${priority}/${tenant}`, `${priority}/${tenant}/${key}`]
  }

  #timeOf(name: string): number {
    return this.#times.get(name) ?? 0
  }

  #isForgotten(tenant: string, line: string): boolean {
    const flow = this.#flows.get(tenant)
    return this.#waitingOf(tenant).length === 0 && (flow === undefined || flow.tag <= this.#timeOf(line))
  }

  #forgetTenant(tenant: string): void {
    this.#times.delete(tenant)
    for (const name of this.#flows.keys()) if (name.startsWith(`${tenant}/`)) this.#flows.delete(name)
  }

  #add(now: number, replica: string, ticket: Ticket, order: number): Entry {
    this.#touchState(now)
    const { beats } = this.#touch(now, replica)
    const [tenant, key] = this.#names(ticket)
    if (this.#isForgotten(tenant, ticket.priority)) this.#forgetTenant(tenant)
    const outer = this.#flow(tenant, this.#timeOf(ticket.priority))
    if (this.#waitingOf(tenant).length === 0) outer.since = ++this.#count
    const inner = this.#flow(key, this.#timeOf(tenant))
    if (this.#waitingOf(key).length === 0) inner.since = ++this.#count
    const entry = {
      ticket,
      replica,
      order,
      running: false,
      charged: 0,
      startedAt: undefined,
      beat: beats,
      tenantTag: 0,
      keyTag: 0
    }
    this.#entries.push(entry)
    return entry
  }

  #start(now: number, entry: Entry): void {
    const { cost, priority, weight } = entry.ticket
    const [tenant, key] = this.#names(entry.ticket)
    const outer = this.#flow(tenant, this.#timeOf(priority))
    const inner = this.#flow(key, this.#timeOf(tenant))
    this.#times.set(priority, Math.max(this.#timeOf(priority), outer.tag))
    this.#times.set(tenant, Math.max(this.#timeOf(tenant), inner.tag))
    entry.charged = Math.min(cost, this.#used)
    entry.tenantTag = outer.tag += entry.charged / weight
    entry.keyTag = inner.tag += entry.charged
    entry.running = true
    entry.startedAt = now
    if (priority === "batch") this.#lastBatchAt = now
  }

  #correct(entry: Entry, used: number): void {
    const { priority, weight } = entry.ticket
    const [tenant, key] = this.#names(entry.ticket)
    const by = used - entry.charged
    if (this.#isForgotten(tenant, priority)) {
      this.#forgetTenant(tenant)
      this.#flows.set(tenant, { tag: entry.tenantTag + by / weight, since: 0 })
      return
    }
    const outer = this.#flow(tenant, this.#timeOf(priority))
    const time = this.#timeOf(tenant)
    const known = this.#flows.get(key)
    const alive = this.#waitingOf(key).length > 0 || (known !== undefined && known.tag > time)
    outer.tag += by / weight
    if (known !== undefined && alive) known.tag += by
    else this.#flows.set(key, { tag: entry.keyTag + by, since: 0 })
  }

  #drop(entry: Entry | undefined): void {
    this.#entries = this.#entries.filter((one) => one !== entry)
  }

  #first(prefix: string, names: ReadonlySet<string>): string | undefined {
    return [...names].sort((one, two) => {
      const [a, b] = [this.#flows.get(`${prefix}/${one}`), this.#flows.get(`${prefix}/${two}`)]
      return (a?.tag ?? 0) - (b?.tag ?? 0) || (a?.since ?? 0) - (b?.since ?? 0)
    })[0]
  }

  #dispatch(now: number, bounds: Bounds): void {
    while (this.#open(now, bounds)) {
      const batchRuns = this.#entries.some(({ running, ticket }) => running && ticket.priority === "batch")
      const due = !batchRuns && now - this.#lastBatchAt >= this.#options.batchEveryMs
      const [batch, interactive] = [this.#waitingOf("batch"), this.#waitingOf("interactive")]
      const line = batch.length > 0 && (interactive.length === 0 || due) ? batch : interactive
      const priority = line[0]?.ticket.priority
      if (priority === undefined) return
      const tenant = this.#first(priority, new Set(line.map(({ ticket }) => ticket.tenant)))
      const ofTenant = line.filter(({ ticket }) => ticket.tenant === tenant)
      const key = this.#first(`${priority}/${tenant}`, new Set(ofTenant.map(({ ticket }) => ticket.key)))
      const [next] = ofTenant.filter(({ ticket }) => ticket.key === key).sort((a, b) => a.order - b.order)
      if (next === undefined) return
      this.#start(now, next)
    }
  }
}
