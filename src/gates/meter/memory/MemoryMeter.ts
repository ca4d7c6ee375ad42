/**
 * The rules of the Meter, on plain data. The Meter in Redis decides the same: random calls of both are compared
 * (`test/contract/MeterProperty.ts`). `redis/scripts.ts` has the reasons.
 *
 * Each operation gets the time in ms, which windows and leases are measured by; `epoch` makes the date of it. It runs to its
 * end, so it is atomic. After a restart totals are missing, and come back from the ledger.
 */
import { type Calendar, type Day, utc } from "../../../domain/Calendar.ts"
import { extraOf, type Headroom, periods } from "../../../domain/Limits.ts"
import {
  type Account,
  accountsOf,
  type Claims,
  type CounterName,
  type CounterOwner,
  type Reservation
} from "../../../domain/Reservation.ts"
import { lapsedMost, livesOf, type MeterOptions, mostUsersOf, windowMs } from "../bounds.ts"
import {
  type Missing,
  type Renewal,
  type ReserveRequest,
  Reserved,
  type Snapshot,
  type Surveyed,
  type Verdict
} from "../Meter.ts"
import { budgetsOf, headroomOf, leastOf, missingOf, refusal, shapeOf, whole } from "../verdicts.ts"
import { AccountState, note, type Request, revive } from "./AccountState.ts"
import { type Claimed, fullBudget, fullLimit, roomOf, statesOf, Users, windowsLeft } from "./Claimed.ts"
import { type Amounts, charge, type Counter, Totals } from "./Totals.ts"

/** What is remembered of a request that has ended. */
const over = "over"

interface Remembered {
  readonly state: Request | typeof over
  readonly until: number
}

const sweepEveryMs = 60_000
/** Longer than a window, because the clock may go back. */
const keepIdleMs = 3_600_000

const tooManyUsers = { by: "users", scope: "key" } as const

const nameOf = (group: string, name: string, { model = "", user = "" }: Partial<Account> = {}): string =>
  JSON.stringify([group, name, user, model])

export class MemoryMeter {
  readonly #lives
  readonly #epoch: (now: number) => number
  readonly #calendar: Calendar
  readonly #totals = new Totals()
  readonly #accounts = new Map<string, AccountState>()
  readonly #groupMarks = new Map<string, number>()
  readonly #users: Users
  /** oldest first, because every write moves its entry to the end */
  readonly #requests = new Map<string, Remembered>()
  #changes = 0
  #sweptAt = 0

  /** `epoch`: the epoch ms of a time that an operation gets; by default it is epoch ms */
  constructor(options: MeterOptions, epoch: (now: number) => number = (now) => now, calendar = utc) {
    this.#lives = livesOf(options)
    this.#users = new Users(mostUsersOf(options))
    this.#epoch = epoch
    this.#calendar = calendar
  }

  /** How much is kept: for tests of what is forgotten. */
  get size(): { readonly accounts: number; readonly requests: number } {
    return { accounts: this.#accounts.size, requests: this.#requests.size }
  }

  /** Forgets everything, as a restart would. */
  clear(): void {
    for (const state of [this.#accounts, this.#groupMarks, this.#totals, this.#requests, this.#users])
      state.clear()
  }

  /** undefined: the request is over. */
  reserve(claims: Claims, ask: ReserveRequest, now: number): Verdict | undefined {
    const known = this.#recall(claims.account, ask.id, now)
    if (known === over) return undefined
    const at = known?.admittedAt ?? this.#epoch(now)
    const day = this.#calendar.dayAt(at)
    const accounts = this.#openAll(claims, now)
    const asked = whole(ask.tokens)
    const full = fullLimit(accounts, asked, ask.slot)
    const counters = this.#totals.of(claims, day)
    const budgets = this.#budgets(claims, counters, now)
    // What the key refuses in any case takes no user in and needs no counters: a name costs nothing to invent.
    const keyIsFull = claims.user !== undefined && known === undefined && full?.scope === "key"
    if (!keyIsFull) {
      const wait = known === undefined ? this.#takeUserIn(claims, now) : 0
      if (wait > 0) {
        const headroom = this.#headroom(claims, day, now)
        return refusal(tooManyUsers, this.#users.most, wait, { day, now: at }, headroom)
      }
      const missing = this.#missing(claims, counters, day)
      if (missing !== undefined) return missing
    }
    if (known !== undefined) return this.#reserved(claims, ask.id, known, now)

    const headroom = this.#headroom(claims, day, now)
    if (full !== undefined) return refusal(full, full.limit, full.waitMs, { day, now: at }, headroom)

    const remainders = shapeOf(claims).budgets.flatMap((name, i) => {
      const [budget, counter] = [budgets[i], counters[i]]
      return budget === undefined || counter === undefined
        ? []
        : [{ name, budget, left: budget - counter.tokens, held: counter.held }]
    })
    const decisive = asked > 0 ? fullBudget(remainders, day) : undefined
    if (decisive !== undefined) {
      const { budget, name, waitMs } = decisive
      return refusal({ by: name.period, scope: name.scope }, budget, waitMs, { day, now: at }, headroom)
    }

    const available = Math.max(0, Math.min(roomOf(accounts), ...remainders.map(({ left }) => left)))
    const charged = new Set(counters.filter((counter) => counter !== undefined))
    const request: Request = {
      admittedAt: at,
      available,
      slot: ask.slot,
      counted: accounts.map(({ account }) => account.requests.add(1))[0],
      held: Math.max(Math.min(asked, available), leastOf(ask)),
      used: 0,
      noted: [],
      charged
    }
    for (const counter of charged) charge(counter, request.held, request.held)
    for (const { account } of accounts) account.occupy(ask.id, request, this.#leaseEnd(now))
    this.#remember(claims, ask.id, request, now)
    return this.#reserved(claims, ask.id, request, now)
  }

  renew(reservation: Reservation, used: number, want: number, now: number): Renewal {
    const { claims, id } = reservation
    const known = this.#recall(claims.account, id, now)
    if (known === over) return { held: 0, exhausted: true }
    const request = known ?? revive(reservation)
    const accounts = this.#openAll(claims, now)
    for (const { account } of accounts) account.leases.delete(id)
    const unusedBefore = request.held - request.used
    note(statesOf(accounts), request, Math.max(request.used, whole(used)))

    const least = Math.max(request.held, request.used)
    const counters = this.#totals.of(claims, this.#calendar.dayAt(request.admittedAt))
    const budgets = this.#budgets(claims, counters, now)
    const room = Math.min(
      roomOf(accounts) - (least - request.used),
      ...budgets.flatMap((budget, i) => {
        const counter = counters[i]
        if (budget === undefined || counter === undefined) return []
        return [budget - counter.tokens - (least - this.#chargedOn(request, counter).tokens)]
      })
    )
    const wanted = whole(want)
    const more = Math.min(Math.max(wanted - least, 0), Math.max(room, 0))
    // A counter that is missing gives nothing, and is not known to be spent.
    const isMissing = budgets.some((budget, i) => budget !== undefined && counters[i] === undefined)
    const held = isMissing ? least : least + more
    for (const counter of counters) {
      if (counter === undefined) continue
      const { exact, tokens } = this.#chargedOn(request, counter)
      if (tokens === 0) request.charged.add(counter)
      const unused = request.charged.has(counter) ? held - request.used : 0
      charge(counter, held - tokens, unused - (exact ? unusedBefore : 0))
    }
    request.held = held
    for (const { account } of accounts) account.occupy(id, request, this.#leaseEnd(now))
    this.#remember(claims, id, request, now)
    return { held, exhausted: least + more < wanted }
  }

  settle(reservation: Reservation, used: number, now: number): Headroom {
    const { admittedAt, claims, id } = reservation
    const known = this.#recall(claims.account, id, now)
    const accounts = this.#openAll(claims, now)
    const day = this.#calendar.dayAt(admittedAt)
    const budgets = this.#budgets(claims, this.#totals.of(claims, day), now)
    if (known === over) for (const { account } of accounts) account.releaseLapsed(id)
    else {
      const request = known ?? revive(reservation)
      for (const { account } of accounts) account.leases.delete(id)
      const unused = request.held - request.used
      note(statesOf(accounts), request, whole(used))
      for (const counter of this.#totals.of(claims, this.#calendar.dayAt(request.admittedAt))) {
        if (counter === undefined) continue
        const { exact, tokens } = this.#chargedOn(request, counter)
        if (exact) charge(counter, request.used - tokens, -unused)
        else charge(counter, Math.max(0, request.used - tokens), 0)
      }
      this.#remember(claims, id, over, now)
    }
    return this.#headroom(claims, day, now, budgets)
  }

  cancel(claims: Claims, id: string, now: number): void {
    const request = this.#recall(claims.account, id, now)
    const accounts = statesOf(this.#openAll(claims, now))
    if (request === over) return accounts.forEach((account) => account.releaseLapsed(id))
    // The request may be forgotten before what it held.
    for (const { leases } of accounts) leases.delete(id)
    if (request !== undefined) {
      const unused = request.held - request.used
      note(accounts, request, 0)
      if (request.counted !== undefined) for (const { requests } of accounts) requests.take(request.counted)
      for (const counter of this.#totals.of(claims, this.#calendar.dayAt(request.admittedAt))) {
        if (counter !== undefined && request.charged.has(counter)) charge(counter, -request.held, -unused)
      }
    }
    this.#remember(claims, id, over, now)
  }

  peek(claims: Claims, now: number): Headroom | Missing {
    const day = this.#calendar.dayAt(this.#epoch(now))
    const counters = this.#totals.of(claims, day)
    return this.#missing(claims, counters, day) ?? this.#headroom(claims, day, now)
  }

  load(
    owner: CounterOwner,
    counters: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>,
    now: number
  ): void {
    this.#sweep(now)
    for (const { counter, tokens } of counters) this.#totals.load(owner, counter, tokens, this.#epoch(now))
  }

  survey(of: Surveyed, instant: number, now: number): Snapshot {
    const totals = this.#totals.amounts(of, this.#calendar.dayAt(instant))
    if (of.key === undefined) {
      const { accounts, group } = of
      const open = accounts.filter((key) => (this.#accounts.get(nameOf(group, key))?.leases.size ?? 0) > 0)
      return { totals, open: open.length, lapsed: [], mark: this.#groupMarks.get(group) ?? 0 }
    }
    const { lapsed, leases, mark } = this.#open(of, now)
    return { totals, open: leases.size - lapsed.length, lapsed: lapsed.slice(0, lapsedMost), mark }
  }

  repair(of: Surveyed, instant: number, mark: number, truth: Amounts, now: number): boolean {
    const survey = this.survey(of, instant, now)
    if (survey.mark !== mark || survey.open > 0 || survey.lapsed.length > 0) return false
    this.#totals.replace(of, this.#calendar.dayAt(instant), truth, this.#epoch(now))
    this.#changes += 1
    if (of.key === undefined) this.#groupMarks.set(of.group, this.#changes)
    else this.#open(of, now).mark = this.#changes
    return true
  }

  /** The account as it is now: windows are moved on, and leases that are over have ended. */
  #open(owner: Account, now: number): AccountState {
    this.#sweep(now)
    const name = nameOf(owner.group, owner.key, owner)
    const account = this.#accounts.get(name) ?? new AccountState()
    this.#accounts.set(name, account)
    account.moveTo(now, this.#lives.leaseMs)
    return account
  }

  /** The accounts of the claims, with the limits of each. */
  #openAll(claims: Claims, now: number): ReadonlyArray<Claimed> {
    return accountsOf(claims).map(({ account, limits, scope }) => ({
      account: this.#open(account, now),
      limits,
      scope
    }))
  }

  /** Takes the user in among those of the account. Returns how long there is no room, in ms; 0: the user is in. */
  #takeUserIn(claims: Claims, now: number): number {
    if (claims.user === undefined) return 0
    const [{ group, key }, user] = [claims.account, claims.user.id]
    if (this.#open({ group, key, user }, now).keptUntil > 0) return 0
    const leaving = this.#users.leaving(nameOf(group, key), user)
    if (leaving !== undefined) {
      if (leaving.until > now) return leaving.until - now
      this.#users.delete(nameOf(group, key), leaving.user)
      this.#accounts.delete(nameOf(group, key, leaving))
      this.#totals.forget({ group, key, user: leaving.user }, this.#calendar.dayAt(this.#epoch(now)))
    }
    this.#users.keep(nameOf(group, key), user, now + this.#users.keptMs(this.#lives.leaseMs))
    return 0
  }

  #leaseEnd(now: number): number {
    return now + this.#lives.leaseMs
  }

  /** Forgets what can matter no more. */
  #sweep(now: number): void {
    for (const [name, { until }] of this.#requests) {
      if (until > now) break
      this.#requests.delete(name)
    }
    if (Math.abs(now - this.#sweptAt) < sweepEveryMs) return
    this.#sweptAt = now
    for (const [name, { leases, mark, touchedAt }] of this.#accounts) {
      // Nothing runs, and its windows are empty or never had anything, so it is as new.
      if (leases.size === 0 && (mark === 0 || touchedAt <= now - keepIdleMs)) this.#accounts.delete(name)
    }
    this.#totals.dropOld(this.#epoch(now))
  }

  #recall({ group }: Account, id: string, now: number): Remembered["state"] | undefined {
    const found = this.#requests.get(nameOf(group, id))
    return found === undefined || found.until <= now ? undefined : found.state
  }

  #remember(claims: Claims, id: string, state: Remembered["state"], now: number): void {
    const { group, key } = claims.account
    this.#changes += 1
    this.#groupMarks.set(group, this.#changes)
    for (const { account, scope } of this.#openAll(claims, now)) {
      account.mark = this.#changes
      if (scope !== "user" || account.keptUntil >= now + windowMs + this.#lives.leaseMs) continue
      account.keptUntil = now + this.#users.keptMs(this.#lives.leaseMs)
      this.#users.keep(nameOf(group, key), claims.user?.id ?? "", account.keptUntil)
    }
    const name = nameOf(group, id)
    this.#requests.delete(name)
    this.#requests.set(name, { state, until: now + this.#lives.rememberMs })
  }

  /**
   * How much of a request a counter has for certain, and whether that is all it has. A counter that was loaded soon after the
   * admission may have been read before the request was in the ledger.
   */
  #chargedOn(
    { admittedAt, charged, held }: Request,
    counter: Counter
  ): { readonly tokens: number; readonly exact: boolean } {
    if (charged.has(counter)) return { tokens: held, exact: true }
    const soon = admittedAt <= counter.loadedAt && admittedAt > counter.loadedAt - this.#lives.ledgerLagMs
    return { tokens: soon ? 0 : held, exact: false }
  }

  #missing(claims: Claims, counters: ReadonlyArray<Counter | undefined>, day: Day): Missing | undefined {
    const flags = budgetsOf(claims).map((budget, i) => budget !== undefined && counters[i] === undefined)
    return flags.includes(true) ? missingOf(claims, day, flags) : undefined
  }

  /** The budgets as they are now: an extra budget raises those of its owner. */
  #budgets(
    claims: Claims,
    counters: ReadonlyArray<Counter | undefined>,
    now: number
  ): ReadonlyArray<number | undefined> {
    const extras = [claims.budgets.extra, claims.tenantBudgets?.extra]
    return budgetsOf(claims).map((budget, i) => {
      const [place, counter] = [i % periods.length, counters[i]]
      const total = counters[i - place + periods.length - 1]
      if (budget === undefined || counter === undefined || total === undefined) return budget
      const [extra, spent] = [
        extras[(i - place) / periods.length],
        { spent: counter.tokens, total: total.tokens }
      ]
      return Math.min(Number.MAX_SAFE_INTEGER, budget + extraOf(extra, this.#epoch(now), spent))
    })
  }

  /** What is left. Budgets are those of the periods of `day`. */
  #headroom(claims: Claims, day: Day, now: number, known?: ReadonlyArray<number | undefined>): Headroom {
    const accounts = this.#openAll(claims, now)
    const counters = this.#totals.of(claims, day)
    const budgets = known ?? this.#budgets(claims, counters, now)
    return headroomOf(claims, day, {
      windows: accounts.map(windowsLeft),
      budgets: budgets.map((budget, i) => {
        const counter = counters[i]
        return budget === undefined || counter === undefined ? -1 : Math.max(0, budget - counter.tokens)
      }),
      now: this.#epoch(now)
    })
  }

  #reserved(claims: Claims, id: string, request: Request, now: number): Reserved {
    const { admittedAt, available, held, slot } = request
    return new Reserved({
      reservation: { id, claims, held, available, admittedAt, slot },
      headroom: this.#headroom(claims, this.#calendar.dayAt(admittedAt), now)
    })
  }
}
