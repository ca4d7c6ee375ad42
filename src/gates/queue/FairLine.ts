/** The requests of one priority that wait, in the order of start-time fair queueing (`QueueStore.ts`). */
import { maxIdleKeys, type Ticket } from "./QueueStore.ts"

export interface Entry {
  readonly ticket: Ticket
  readonly replica: string
  /** number among all requests that ever came */
  readonly order: number
  /** beats of its replica before it came */
  readonly beat: number
  running: boolean
  /** when it got its place; undefined while it waits, and when the store learned of its place by `restore` */
  startedAt: number | undefined
  /** tokens that its flows were charged when it got its place */
  charged: number
  /** finish tags of its tenant and key when it got its place, should both be forgotten before it ends */
  tenantTag: number
  keyTag: number
  /** whether its model was loaded when it got its place, as far as is known */
  loaded: boolean
}

/** Requests that share a tag: those of a key, or of all keys of a tenant. */
interface Flow {
  /** start tag of the next request; without waiting requests the finish tag of the last */
  tag: number
  /** of equal tags, the flow that waits longer goes first */
  since: number
}

interface KeyFlow extends Flow {
  /** oldest first */
  readonly waiting: Array<Entry>
}

interface TenantFlow extends Flow {
  /** virtual time among its keys, as `FairLine` has it among tenants */
  time: number
  readonly keys: Map<string, KeyFlow>
}

const waitingIn = ({ keys }: TenantFlow): number =>
  [...keys.values()].reduce((sum, { waiting }) => sum + waiting.length, 0)

const leastTag = (flows: Iterable<Flow>): number => Math.min(...[...flows].map(({ tag }) => tag))

const isFor =
  (model: string) =>
  ({ ticket }: Entry): boolean =>
    ticket.model === model

/** The smallest tag first. */
const inOrder = <F extends Flow>(flows: Iterable<F>): ReadonlyArray<F> =>
  [...flows].sort((one, two) => one.tag - two.tag || one.since - two.since)

/** The name with the most waiting requests; of equal ones the last by name. */
const mostOf = (counts: ReadonlyMap<string, number>): readonly [name: string, count: number] =>
  [...counts].toSorted((one, two) => two[1] - one[1] || (one[0] < two[0] ? 1 : -1))[0] ?? ["", 0]

/** Whoever has the key may invent users, and each of them would be remembered. */
const forgetLeast = ({ keys, time }: TenantFlow): void => {
  const idle = [...keys].filter(([, { tag, waiting }]) => waiting.length === 0 && tag > time)
  if (idle.length <= maxIdleKeys) return
  const sorted = idle.toSorted(([one, { tag }], [two, other]) => tag - other.tag || (one < two ? -1 : 1))
  for (const [name] of sorted.slice(0, -maxIdleKeys)) keys.delete(name)
}

export class FairLine {
  /**
   * Virtual time among tenants: the start tag of the last request that went. A request of a loaded model passes requests that wait
   * for another model. The virtual time is then their smallest tag: a tenant that comes begins no later than they do.
   */
  #time = 0
  /** A flow without waiting requests is kept while its tag is ahead: later it would start at the virtual time anyway. */
  readonly #tenants = new Map<string, TenantFlow>()
  readonly #models = new Map<string, number>()

  get waiting(): number {
    return [...this.#tenants.values()].reduce((sum, tenant) => sum + waitingIn(tenant), 0)
  }

  /** `nextOrder` numbers the flows that begin to wait. */
  add(entry: Entry, nextOrder: () => number): void {
    const { key: keyName, tenant: tenantName } = entry.ticket
    const tenant = this.#tenants.get(tenantName) ?? { tag: 0, since: 0, time: 0, keys: new Map() }
    this.#tenants.set(tenantName, tenant)
    if (waitingIn(tenant) === 0) {
      tenant.tag = Math.max(tenant.tag, this.#time)
      tenant.since = nextOrder()
    }
    const key: KeyFlow = tenant.keys.get(keyName) ?? { tag: 0, since: 0, waiting: [] }
    tenant.keys.set(keyName, key)
    if (key.waiting.length === 0) {
      key.tag = Math.max(key.tag, tenant.time)
      key.since = nextOrder()
    }
    // Nearly always the last one: only restored requests come out of order.
    const at = key.waiting.findLastIndex(({ order }) => order <= entry.order)
    key.waiting.splice(at + 1, 0, entry)
    this.#count(entry, 1)
  }

  /** The models that requests wait for, with how many do. */
  get models(): ReadonlyMap<string, number> {
    return this.#models
  }

  /** The first request in the fair order, or with `may`, of those whose model may go. */
  next(may?: (model: string) => boolean): Entry | undefined {
    for (const { keys } of inOrder(this.#tenants.values())) {
      for (const { waiting } of inOrder(keys.values())) {
        const entry = may === undefined ? waiting[0] : waiting.find(({ ticket }) => may(ticket.model))
        if (entry !== undefined) return entry
      }
    }
    return undefined
  }

  /** By how much the tenant of one waiting request is ahead of another's; of two of one tenant, their keys. */
  lead({ ticket: one }: Entry, { ticket: two }: Entry): number {
    const [first, second] = [this.#tenants.get(one.tenant), this.#tenants.get(two.tenant)]
    const [ahead, behind] =
      first === second ? [first?.keys.get(one.key), second?.keys.get(two.key)] : [first, second]
    return (ahead?.tag ?? 0) - (behind?.tag ?? 0)
  }

  /**
   * A waiting request goes, and its flows are charged `tokens`. `passes`: others with smaller tags wait for another model. When
   * others had to make room for its model, the tenants that wait for the model are charged `load`, the virtual time of loading it,
   * in equal parts, and within a tenant its keys.
   */
  start(entry: Entry, tokens: number, load = 0, passes = false): void {
    const { key: keyName, model, tenant: tenantName, weight } = entry.ticket
    const tenant = this.#tenants.get(tenantName)
    const key = tenant?.keys.get(keyName)
    if (tenant === undefined || key === undefined) return
    const tenants = [...this.#tenants.values()]
    const keys = [...tenant.keys.values()]
    const least = passes ? leastTag(tenants.filter((one) => waitingIn(one) > 0)) : tenant.tag
    const leastKey = passes ? leastTag(keys.filter(({ waiting }) => waiting.length > 0)) : key.tag
    this.#time = Math.max(this.#time, least)
    tenant.time = Math.max(tenant.time, leastKey)
    forgetLeast(tenant)
    if (load > 0) this.#charge(model, load)
    tenant.tag += tokens / weight
    key.tag += tokens
    entry.charged = tokens
    entry.tenantTag = tenant.tag
    entry.keyTag = key.tag
    this.remove(entry)
  }

  #charge(model: string, load: number): void {
    const asking = [...this.#tenants.values()].flatMap((tenant) => {
      const keys = [...tenant.keys.values()].filter(({ waiting }) => waiting.some(isFor(model)))
      return keys.length === 0 ? [] : [{ tenant, keys }]
    })
    for (const { keys, tenant } of asking) {
      const part = load / asking.length
      tenant.tag += part
      for (const key of keys) key.tag += part / keys.length
    }
  }

  /** Removes a waiting request. */
  remove(entry: Entry): void {
    const key = this.#tenants.get(entry.ticket.tenant)?.keys.get(entry.ticket.key)
    const at = key?.waiting.indexOf(entry) ?? -1
    if (at !== -1) {
      key?.waiting.splice(at, 1)
      this.#count(entry, -1)
    }
    this.#forgetIdle()
  }

  /** Replaces what a request was charged by what it used. */
  correct({ charged, keyTag, tenantTag, ticket }: Entry, used: number): void {
    const by = used - charged
    const tenant = this.#tenants.get(ticket.tenant)
    if (tenant === undefined) {
      const tag = tenantTag + by / ticket.weight
      this.#tenants.set(ticket.tenant, { tag, since: 0, time: 0, keys: new Map() })
    } else {
      tenant.tag += by / ticket.weight
      const key = tenant.keys.get(ticket.key)
      if (key === undefined) tenant.keys.set(ticket.key, { tag: keyTag + by, since: 0, waiting: [] })
      else key.tag += by
    }
    this.#forgetIdle()
  }

  /**
   * The newest request of the tenant with the most waiting ones, if that has at least two more than the tenant of `ticket`, or
   * `anyway`; else the same between the keys of its tenant. undefined: nobody has too many.
   */
  crowded(ticket: Ticket, anyway: boolean): Entry | undefined {
    const counts = new Map([...this.#tenants].map(([name, tenant]) => [name, waitingIn(tenant)]))
    const [most, count] = mostOf(counts)
    const isOther = anyway || count > (counts.get(ticket.tenant) ?? 0) + 1
    const keys = this.#tenants.get(isOther ? most : ticket.tenant)?.keys ?? new Map<string, KeyFlow>()
    const keyCounts = new Map([...keys].map(([name, { waiting }]) => [name, waiting.length]))
    const [crowdedKey, keyCount] = mostOf(keyCounts)
    if (!isOther && keyCount <= (keyCounts.get(ticket.key) ?? 0) + 1) return undefined
    return keys.get(crowdedKey)?.waiting.at(-1)
  }

  #count({ ticket: { model } }: Entry, by: number): void {
    const waiting = (this.#models.get(model) ?? 0) + by
    if (waiting > 0) this.#models.set(model, waiting)
    else this.#models.delete(model)
  }

  #forgetIdle(): void {
    for (const [name, tenant] of this.#tenants) {
      for (const [keyName, { tag, waiting }] of tenant.keys) {
        if (waiting.length === 0 && tag <= tenant.time) tenant.keys.delete(keyName)
      }
      if (waitingIn(tenant) === 0 && tenant.tag <= this.#time) this.#tenants.delete(name)
    }
  }
}
