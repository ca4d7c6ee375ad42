/**
 * The counters behind `layerMemory`. The same decisions as the scripts, and `scripts.ts` says why they are as they
 * are. JavaScript runs a verb to its end, so each is atomic. Every verb is told the time in ms: windows and leases are
 * measured by it. Days and months come from `epoch`, which may be another clock.
 */
import { bucketsAt } from "../../../domain/Calendar.ts"
import type { Headroom, Period } from "../../../domain/Limits.ts"
import { periods } from "../../../domain/Limits.ts"
import { headroomOf, leastOf, lifeOf, marked, refusal, tagOf, whole } from "../verdicts.ts"
import {
  type ReserveRequest,
  type ClaimName,
  Missing,
  type Renewal,
  Reserved,
  type Snapshot,
  type Verdict
} from "../Meter.ts"
import type { Account, Bucket, Claims, Reservation } from "../../../domain/Reservation.ts"
import { charge, inTotal, type AccountCounters, note, type Request, revived, type Total } from "./Account.ts"
import { AccountLeases } from "./AccountLeases.ts"
import { lapsedMost } from "../bounds.ts"
import { Window, windowMs } from "./windows.ts"

export interface Options {
  /** seconds a slot and its hold live without being renewed (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** seconds a request id is remembered after its last verb. 3600 */
  readonly rememberS?: number
  /** the epoch ms of an instant that a verb was told; default: verbs are told epoch ms */
  readonly epoch?: (now: number) => number
}

interface Memory {
  /** absent: the request is over */
  readonly request: Request | undefined
  readonly until: number
}

const sweepEveryMs = 60_000

/** Nothing of it outlives the process: after a restart totals are missing and come back from the ledger. */
export class MemoryMeter {
  readonly #leaseMs: number
  readonly #rememberMs: number
  readonly #epoch: (now: number) => number
  readonly #accounts = new Map<string, AccountCounters>()
  /** oldest first, because every write moves its entry to the end */
  readonly #requests = new Map<string, Memory>()
  #sweptAt = 0
  #marks = 0

  constructor(options: Options) {
    this.#leaseMs = options.leaseS * 1000
    this.#rememberMs = (options.rememberS ?? 3600) * 1000
    this.#epoch = options.epoch ?? ((now) => now)
  }

  /** How much is kept: for tests of what is forgotten. */
  get size(): { readonly accounts: number; readonly requests: number } {
    return { accounts: this.#accounts.size, requests: this.#requests.size }
  }

  /** Forgets everything, as a restart would. */
  clear(): void {
    this.#accounts.clear()
    this.#requests.clear()
  }

  reserve(claims: Claims, ask: ReserveRequest, now: number): Verdict | undefined {
    const memory = this.#recall(claims.account, ask.id, now)
    if (memory !== undefined && memory.request === undefined) return undefined
    const account = this.#open(claims.account, now)
    const known = memory?.request
    const at = known?.admittedAt ?? this.#epoch(now)
    const missing = this.#missing(account, claims, at)
    if (missing !== undefined) return missing
    if (known !== undefined) return this.#reserved(account, claims, ask.id, known, now)

    const { limits, budgets } = claims
    const outstanding = account.leases.tokens
    const roomInWindow = limits.tpm - account.tokens.sum - outstanding
    const asked = whole(ask.tokens)
    const refused = (by: ClaimName, limit: number, waitMs: number) =>
      refusal(by, limit, waitMs, at, this.#headroom(account, claims, at, now))
    if (account.requests.sum >= limits.rpm) {
      return refused("requests", limits.rpm, account.requests.waitFor(limits.rpm - 1, now))
    }
    if (asked > 0 && roomInWindow <= 0) {
      // What is held may be released unused at any moment: alone it is no reason to wait.
      const room = limits.tpm - 1 - (outstanding < limits.tpm ? outstanding : 0)
      return refused("tokens", limits.tpm, account.tokens.waitFor(room, now))
    }
    if (ask.slot && account.leases.slots >= limits.concurrent)
      return refused("concurrency", limits.concurrent, 1)
    const totals = this.#totals(account, at)
    let available = roomInWindow
    let spent: Period | undefined
    for (const period of periods) {
      const [budget, total] = [budgets[period], totals.get(period)]
      if (budget === undefined || total === undefined) continue
      if (total.tokens >= budget) spent = period
      available = Math.min(available, budget - total.tokens)
    }
    if (asked > 0 && spent !== undefined) return refused(spent, budgets[spent] ?? 0, 0)

    available = Math.max(0, available)
    const request: Request = {
      admittedAt: at,
      available,
      slot: ask.slot,
      countedAt: now,
      held: Math.max(Math.min(asked, available), leastOf(ask)),
      used: 0,
      noted: [],
      charged: totals
    }
    account.requests.add(1)
    this.#lease(account, ask.id, request, now)
    for (const total of totals.values()) charge(total, request.held)
    this.#remember(claims.account, ask.id, request, now)
    return this.#reserved(account, claims, ask.id, request, now)
  }

  renew(reservation: Reservation, used: number, want: number, now: number): Renewal {
    const { id, claims } = reservation
    const memory = this.#recall(claims.account, id, now)
    if (memory !== undefined && memory.request === undefined) return { held: 0, exhausted: true }
    const request = memory?.request ?? revived(reservation)
    const account = this.#open(claims.account, now)
    account.leases.delete(id)
    note(account, request, Math.max(request.used, whole(used)))

    const { limits, budgets } = claims
    const floor = Math.max(request.held, request.used)
    const totals = this.#totals(account, request.admittedAt)
    let room = limits.tpm - account.tokens.sum - account.leases.tokens - (floor - request.used)
    let unknown = false
    for (const period of periods) {
      const [budget, total] = [budgets[period], totals.get(period)]
      if (budget === undefined) continue
      if (total === undefined) unknown = true
      else room = Math.min(room, budget - total.tokens - (floor - inTotal(request, period, total).tokens))
    }
    const wanted = whole(want)
    const more = Math.min(Math.max(wanted - floor, 0), Math.max(room, 0))
    const exhausted = floor + more < wanted
    // On a counter that is missing nothing is given, but nothing is known to be spent either.
    const held = unknown ? floor : floor + more
    for (const [period, total] of totals) {
      const { tokens } = inTotal(request, period, total)
      charge(total, held - tokens)
      if (tokens === 0) request.charged.set(period, total)
    }
    request.held = held
    this.#lease(account, id, request, now)
    this.#remember(claims.account, id, request, now)
    return { held, exhausted }
  }

  settle(reservation: Reservation, used: number, now: number, keepSlot = false): Headroom {
    const { id, claims, admittedAt } = reservation
    const memory = this.#recall(claims.account, id, now)
    const account = this.#open(claims.account, now)
    if (memory === undefined || memory.request !== undefined) {
      const request = memory?.request ?? revived(reservation)
      account.leases.delete(id)
      note(account, request, whole(used))
      for (const [period, total] of this.#totals(account, request.admittedAt)) {
        const { tokens, exact } = inTotal(request, period, total)
        const difference = request.used - tokens
        charge(total, exact ? difference : Math.max(0, difference))
      }
      if (keepSlot && request.slot) this.#keepSlot(account, id, now)
      this.#remember(claims.account, id, undefined, now)
    }
    return this.#headroom(account, claims, admittedAt, now)
  }

  renewSlot({ claims, id }: Reservation, now: number): void {
    const memory = this.#recall(claims.account, id, now)
    if (memory?.request !== undefined) return
    const account = this.#open(claims.account, now)
    // Known to be over and without a slot: it was freed, or its lease has ended.
    if (memory !== undefined && !account.leases.has(id)) return
    this.#keepSlot(account, id, now)
    this.#remember(claims.account, id, undefined, now)
  }

  freeSlot({ claims, id }: Reservation, now: number): void {
    const memory = this.#recall(claims.account, id, now)
    if (memory === undefined || memory.request !== undefined) return
    this.#open(claims.account, now).leases.delete(id)
    this.#remember(claims.account, id, undefined, now)
  }

  cancel(claims: Claims, id: string, now: number): void {
    const memory = this.#recall(claims.account, id, now)
    if (memory !== undefined && memory.request === undefined) return
    const request = memory?.request
    if (request !== undefined) {
      const account = this.#open(claims.account, now)
      account.leases.delete(id)
      note(account, request, 0)
      if (request.countedAt !== undefined) account.requests.takeBack(request.countedAt, 1)
      for (const [period, total] of this.#totals(account, request.admittedAt)) {
        if (request.charged.get(period) === total) charge(total, -request.held)
      }
    } else {
      // The request may be forgotten before what it held.
      this.#open(claims.account, now).leases.delete(id)
    }
    this.#remember(claims.account, id, undefined, now)
  }

  peek(claims: Claims, now: number): Headroom | Missing {
    const [account, at] = [this.#open(claims.account, now), this.#epoch(now)]
    return this.#missing(account, claims, at) ?? this.#headroom(account, claims, at, now)
  }

  load(
    of: Account,
    totals: ReadonlyArray<{ readonly bucket: Bucket; readonly tokens: number }>,
    now: number
  ): void {
    const [account, loadedAt] = [this.#open(of, now), this.#epoch(now)]
    for (const { bucket, tokens } of totals) {
      if (account.totals.has(bucket)) continue
      account.totals.set(bucket, { tokens: whole(tokens), loadedAt, droppedAt: now + lifeOf(bucket) })
    }
  }

  survey(of: Account, instant: number, now: number): Snapshot {
    const account = this.#open(of, now)
    const totals: { -readonly [P in Period]?: number } = {}
    for (const [period, { tokens }] of this.#totals(account, instant)) totals[period] = tokens
    const { lapsed } = account.leases
    const open = account.leases.size - lapsed.length
    return { totals, open, lapsed: lapsed.slice(0, lapsedMost), mark: account.mark }
  }

  repair(
    of: Account,
    instant: number,
    mark: number,
    truth: { readonly [P in Period]?: number },
    now: number
  ): boolean {
    const account = this.#open(of, now)
    if (account.mark !== mark || account.leases.size > 0) return false
    const names = bucketsAt(instant)
    for (const [period, { droppedAt }] of this.#totals(account, instant)) {
      const tokens = truth[period]
      if (tokens === undefined) continue
      // Another load: what was charged to the old one is in the ledger's figure.
      account.totals.set(names[period], { tokens: whole(tokens), loadedAt: this.#epoch(now), droppedAt })
    }
    account.mark = ++this.#marks
    return true
  }

  #open(account: Account, now: number): AccountCounters {
    this.#sweep(now)
    const name = `${tagOf(account)}:${account.key}`
    let ledgers = this.#accounts.get(name)
    if (ledgers === undefined) {
      ledgers = {
        requests: new Window(now),
        tokens: new Window(now),
        leases: new AccountLeases(),
        totals: new Map(),
        touchedAt: now,
        mark: ++this.#marks
      }
      this.#accounts.set(name, ledgers)
    }
    ledgers.requests.moveTo(now)
    ledgers.tokens.moveTo(now)
    ledgers.leases.moveTo(now, this.#leaseMs)
    ledgers.touchedAt = now
    return ledgers
  }

  /** Accounts that nothing has happened to for longer than a window and a lease hold only totals, which can be rebuilt. */
  #sweep(now: number): void {
    for (const [id, memory] of this.#requests) {
      if (memory.until > now) break
      this.#requests.delete(id)
    }
    if (Math.abs(now - this.#sweptAt) < sweepEveryMs) return
    this.#sweptAt = now
    const idle = now - windowMs - this.#leaseMs - sweepEveryMs
    for (const [name, account] of this.#accounts) {
      if (account.touchedAt < idle) this.#accounts.delete(name)
      else
        for (const [bucket, total] of account.totals)
          if (total.droppedAt <= now) account.totals.delete(bucket)
    }
  }

  #recall(account: Account, id: string, now: number): Memory | undefined {
    const memory = this.#requests.get(`${tagOf(account)}:${id}`)
    return memory === undefined || memory.until <= now ? undefined : memory
  }

  #remember(account: Account, id: string, request: Request | undefined, now: number): void {
    const ledgers = this.#accounts.get(`${tagOf(account)}:${account.key}`)
    if (ledgers !== undefined) ledgers.mark = ++this.#marks
    const name = `${tagOf(account)}:${id}`
    this.#requests.delete(name)
    this.#requests.set(name, { request, until: now + this.#rememberMs })
  }

  #lease(account: AccountCounters, id: string, request: Request, now: number): void {
    const tokens = request.held - request.used
    if (!request.slot && tokens <= 0) return
    account.leases.set(id, { until: now + this.#leaseMs, slot: request.slot, tokens })
  }

  #keepSlot(account: AccountCounters, id: string, now: number): void {
    account.leases.set(id, { until: now + this.#leaseMs, slot: true, tokens: 0 })
  }

  #totals(account: AccountCounters, at: number): Map<Period, Total> {
    const [names, totals] = [bucketsAt(at), new Map<Period, Total>()]
    for (const period of periods) {
      const total = account.totals.get(names[period])
      if (total !== undefined) totals.set(period, total)
    }
    return totals
  }

  #missing(account: AccountCounters, claims: Claims, at: number): Missing | undefined {
    const totals = this.#totals(account, at)
    const flags = periods.map((period) => claims.budgets[period] !== undefined && !totals.has(period))
    return flags.includes(true) ? new Missing({ buckets: marked(bucketsAt(at), flags) }) : undefined
  }

  /** `at` (epoch ms) is in the periods of the budgets. */
  #headroom(account: AccountCounters, claims: Claims, at: number, now: number): Headroom {
    const totals = this.#totals(account, at)
    return headroomOf(claims, at, {
      requests: Math.max(0, claims.limits.rpm - account.requests.sum),
      tokens: Math.max(0, claims.limits.tpm - account.tokens.sum - account.leases.tokens),
      budgets: periods.map((period) => {
        const [budget, total] = [claims.budgets[period], totals.get(period)]
        return budget === undefined || total === undefined ? -1 : Math.max(0, budget - total.tokens)
      }),
      now: this.#epoch(now),
      requestsResetMs: account.requests.emptyIn(now),
      tokensResetMs: account.leases.tokens > 0 ? windowMs : account.tokens.emptyIn(now)
    })
  }

  #reserved(account: AccountCounters, claims: Claims, id: string, request: Request, now: number): Reserved {
    const { admittedAt, available, held, slot, charged } = request
    const flags = periods.map((period) => charged.has(period))
    return new Reserved({
      reservation: {
        id,
        claims,
        held,
        available,
        admittedAt,
        buckets: marked(bucketsAt(admittedAt), flags),
        slot
      },
      headroom: this.#headroom(account, claims, admittedAt, now)
    })
  }
}
