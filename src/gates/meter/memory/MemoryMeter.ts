/**
 * The counters behind `layerMemory`. They decide as the scripts do; `redis/scripts.ts` has the reasons. JavaScript runs each
 * operation to its end, so it is atomic. Each operation gets the time in ms, which windows and leases are measured by. Days
 * and months come from `epoch`, which may be another clock.
 */
import { type BudgetName, budgetNames, type Headroom, type Period, periods } from "../../../domain/Limits.ts"
import { budgetsOf, headroomOf, leastOf, missingOf, refusal, tagOf, whole } from "../verdicts.ts"
import {
  type ReserveRequest,
  type Missing,
  type ClaimName,
  type Renewal,
  Reserved,
  type Snapshot,
  type Verdict
} from "../Meter.ts"
import type { Account, Claims, CounterName, CounterOwner, Reservation } from "../../../domain/Reservation.ts"
import {
  type AccountCounters,
  charge,
  chargedOn,
  type Counter,
  type GroupCounters,
  type Memory,
  note,
  type Request,
  revived
} from "./Account.ts"
import { addMissing, countersAt, dropOld, existing, replaceCounters, tokensAt } from "./counters.ts"
import type { Options } from "./Options.ts"
import { AccountLeases } from "./AccountLeases.ts"
import { lapsedMost, ledgerLagMs, rememberedS, windowMs } from "../bounds.ts"
import { Window } from "./windows.ts"

const sweepEveryMs = 60_000

const nameOf = (account: Account): string => `${tagOf(account)}:${account.key}`

/** Nothing of it outlives the process: after a restart totals are missing and come back from the ledger. */
export class MemoryMeter {
  readonly #leaseMs: number
  readonly #rememberMs: number
  readonly #lagMs: number
  readonly #epoch: (now: number) => number
  readonly #accounts = new Map<string, AccountCounters>()
  readonly #groups = new Map<string, GroupCounters>()
  /** oldest first, because every write moves its entry to the end */
  readonly #requests = new Map<string, Memory>()
  #sweptAt = 0
  #marks = 0

  constructor(options: Options) {
    this.#leaseMs = options.leaseS * 1000
    this.#rememberMs = (options.rememberS ?? rememberedS(options.leaseS)) * 1000
    this.#lagMs = ledgerLagMs + (options.queueMaxWaitMs ?? 0)
    this.#epoch = options.epoch ?? ((now) => now)
  }

  /** How much is kept: for tests of what is forgotten. */
  get size(): { readonly accounts: number; readonly requests: number } {
    return { accounts: this.#accounts.size, requests: this.#requests.size }
  }

  /** Forgets everything, as a restart would. */
  clear(): void {
    this.#accounts.clear()
    this.#groups.clear()
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

    const { limits } = claims
    const outstanding = account.leases.tokens
    const roomInWindow = limits.tpm - account.tokens.sum - outstanding
    const asked = whole(ask.tokens)
    const refused = (by: ClaimName, limit: number, waitMs: number) =>
      refusal({ by, scope: "key" }, limit, waitMs, at, this.#headroom(account, claims, at, now))
    if (account.requests.sum >= limits.rpm) {
      return refused("requests", limits.rpm, account.requests.waitFor(limits.rpm - 1))
    }
    if (asked > 0 && roomInWindow <= 0) {
      // What is held may be released unused at any moment: alone it is no reason to wait.
      const room = limits.tpm - 1 - (outstanding < limits.tpm ? outstanding : 0)
      return refused("tokens", limits.tpm, account.tokens.waitFor(room))
    }
    if (ask.slot && account.leases.slots >= limits.concurrent)
      return refused("concurrency", limits.concurrent, 1)
    const [budgets, counters] = [budgetsOf(claims), countersAt(account, at)]
    let available = roomInWindow
    let spent: { readonly name: BudgetName; readonly budget: number } | undefined
    budgetNames.forEach((name, i) => {
      const [budget, counter] = [budgets[i], counters[i]]
      if (budget === undefined || counter === undefined) return
      available = Math.min(available, budget - counter.tokens)
      if (counter.tokens < budget) return
      // The last to end decides, because the request could not pass before; then the account's own.
      if (spent === undefined || periods.indexOf(name.period) > periods.indexOf(spent.name.period))
        spent = { name, budget }
    })
    if (asked > 0 && spent !== undefined) {
      const { budget, name } = spent
      const headroom = this.#headroom(account, claims, at, now)
      return refusal({ by: name.period, scope: name.scope }, budget, 0, at, headroom)
    }

    available = Math.max(0, available)
    const request: Request = {
      admittedAt: at,
      available,
      slot: ask.slot,
      countedAt: now,
      held: Math.max(Math.min(asked, available), leastOf(ask)),
      used: 0,
      noted: [],
      charged: new Set(existing(counters))
    }
    account.requests.add(1)
    this.#lease(account, ask.id, request, now)
    for (const counter of request.charged) charge(counter, request.held)
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

    const floor = Math.max(request.held, request.used)
    const [budgets, counters] = [budgetsOf(claims), countersAt(account, request.admittedAt)]
    let room = claims.limits.tpm - account.tokens.sum - account.leases.tokens - (floor - request.used)
    let unknown = false
    budgets.forEach((budget, i) => {
      const counter = counters[i]
      if (budget === undefined) return
      if (counter === undefined) unknown = true
      else
        room = Math.min(
          room,
          budget - counter.tokens - (floor - chargedOn(request, counter, this.#lagMs).tokens)
        )
    })
    const wanted = whole(want)
    const more = Math.min(Math.max(wanted - floor, 0), Math.max(room, 0))
    const exhausted = floor + more < wanted
    // On a counter that is missing nothing is given, but nothing is known to be spent either.
    const held = unknown ? floor : floor + more
    for (const counter of existing(counters)) {
      const { tokens } = chargedOn(request, counter, this.#lagMs)
      charge(counter, held - tokens)
      if (tokens === 0) request.charged.add(counter)
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
      for (const counter of existing(countersAt(account, request.admittedAt))) {
        const { tokens, exact } = chargedOn(request, counter, this.#lagMs)
        const difference = request.used - tokens
        charge(counter, exact ? difference : Math.max(0, difference))
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
      for (const counter of existing(countersAt(account, request.admittedAt))) {
        if (request.charged.has(counter)) charge(counter, -request.held)
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
    owner: CounterOwner,
    counters: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>,
    now: number
  ): void {
    const { group, key } = owner
    const totals = (key === undefined ? this.#group(group) : this.#open({ group, key }, now)).totals
    addMissing(totals, counters, this.#epoch(now), now)
  }

  survey(of: Account, instant: number, now: number): Snapshot {
    const account = this.#open(of, now)
    const totals = tokensAt(account.totals, instant)
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
    replaceCounters(account.totals, instant, truth, this.#epoch(now))
    account.mark = ++this.#marks
    return true
  }

  surveyGroup(
    group: string,
    keys: ReadonlyArray<string>,
    instant: number
  ): Pick<Snapshot, "mark" | "open" | "totals"> {
    const { mark, totals } = this.#group(group)
    const accounts = keys.flatMap((key) => this.#accounts.get(nameOf({ group, key })) ?? [])
    const open = accounts.filter(({ leases }) => leases.size > 0).length
    return { totals: tokensAt(totals, instant), open, mark }
  }

  repairGroup(
    group: string,
    keys: ReadonlyArray<string>,
    instant: number,
    mark: number,
    truth: { readonly [P in Period]?: number },
    now: number
  ): boolean {
    const survey = this.surveyGroup(group, keys, instant)
    if (survey.mark !== mark || survey.open > 0) return false
    const counters = this.#group(group)
    replaceCounters(counters.totals, instant, truth, this.#epoch(now))
    counters.mark = ++this.#marks
    return true
  }

  #group(group: string): GroupCounters {
    const name = tagOf({ group })
    const found = this.#groups.get(name)
    if (found !== undefined) return found
    const counters = { totals: new Map<CounterName, Counter>(), mark: ++this.#marks }
    this.#groups.set(name, counters)
    return counters
  }

  #open(account: Account, now: number): AccountCounters {
    this.#sweep(now)
    const name = nameOf(account)
    let counters = this.#accounts.get(name)
    if (counters === undefined) {
      counters = {
        requests: new Window(now),
        tokens: new Window(now),
        leases: new AccountLeases(),
        totals: new Map(),
        group: this.#group(account.group),
        touchedAt: now,
        mark: ++this.#marks
      }
      this.#accounts.set(name, counters)
    }
    counters.requests.moveTo(now)
    counters.tokens.moveTo(now)
    counters.leases.moveTo(now, this.#leaseMs)
    counters.touchedAt = now
    return counters
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
      else dropOld(account.totals, now)
    }
    for (const { totals } of this.#groups.values()) dropOld(totals, now)
  }

  #recall(account: Account, id: string, now: number): Memory | undefined {
    const memory = this.#requests.get(`${tagOf(account)}:${id}`)
    return memory === undefined || memory.until <= now ? undefined : memory
  }

  #remember(account: Account, id: string, request: Request | undefined, now: number): void {
    const counters = this.#accounts.get(nameOf(account))
    if (counters !== undefined) counters.mark = counters.group.mark = ++this.#marks
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

  #missing(account: AccountCounters, claims: Claims, at: number): Missing | undefined {
    const counters = countersAt(account, at)
    const flags = budgetsOf(claims).map((budget, i) => budget !== undefined && counters[i] === undefined)
    return flags.includes(true) ? missingOf(at, flags) : undefined
  }

  /** `at` (epoch ms) is in the periods of the budgets. */
  #headroom(account: AccountCounters, claims: Claims, at: number, now: number): Headroom {
    const counters = countersAt(account, at)
    return headroomOf(claims, at, {
      requests: Math.max(0, claims.limits.rpm - account.requests.sum),
      tokens: Math.max(0, claims.limits.tpm - account.tokens.sum - account.leases.tokens),
      budgets: budgetsOf(claims).map((budget, i) => {
        const counter = counters[i]
        return budget === undefined || counter === undefined ? -1 : Math.max(0, budget - counter.tokens)
      }),
      now: this.#epoch(now),
      requestsResetMs: account.requests.emptyIn,
      tokensResetMs: account.leases.tokens > 0 ? windowMs : account.tokens.emptyIn
    })
  }

  #reserved(account: AccountCounters, claims: Claims, id: string, request: Request, now: number): Reserved {
    const { admittedAt, available, held, slot } = request
    return new Reserved({
      reservation: { id, claims, held, available, admittedAt, slot },
      headroom: this.#headroom(account, claims, admittedAt, now)
    })
  }
}
