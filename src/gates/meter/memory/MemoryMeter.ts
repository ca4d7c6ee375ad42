/**
 * The rules of the Meter, on plain data. The Meter in Redis decides the same: random calls of both are compared
 * (`test/contract/MeterProperty.ts`). `redis/scripts.ts` has the reasons.
 *
 * Each operation gets the time in ms, which windows and leases are measured by; `epoch` makes the date of it. It runs to its
 * end, so it is atomic. After a restart totals are missing, and come back from the ledger.
 */
import { budgetNames, type Headroom, periods } from "../../../domain/Limits.ts"
import type { Account, Claims, CounterName, CounterOwner, Reservation } from "../../../domain/Reservation.ts"
import { lapsedMost, livesOf, type MeterOptions, windowMs } from "../bounds.ts"
import {
  type ClaimName,
  type Missing,
  type Renewal,
  type ReserveRequest,
  Reserved,
  type Snapshot,
  type Verdict
} from "../Meter.ts"
import { budgetsOf, headroomOf, leastOf, missingOf, refusal, whole } from "../verdicts.ts"
import { AccountState, type Request, revive } from "./AccountState.ts"
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

const nameOf = (group: string, name: string): string => JSON.stringify([group, name])

export class MemoryMeter {
  readonly #lives
  readonly #epoch: (now: number) => number
  readonly #totals = new Totals()
  readonly #accounts = new Map<string, AccountState>()
  readonly #groupMarks = new Map<string, number>()
  /** oldest first, because every write moves its entry to the end */
  readonly #requests = new Map<string, Remembered>()
  #changes = 0
  #sweptAt = 0

  /** `epoch`: the epoch ms of a time that an operation gets; by default it is epoch ms */
  constructor(options: MeterOptions, epoch: (now: number) => number = (now) => now) {
    this.#lives = livesOf(options)
    this.#epoch = epoch
  }

  /** How much is kept: for tests of what is forgotten. */
  get size(): { readonly accounts: number; readonly requests: number } {
    return { accounts: this.#accounts.size, requests: this.#requests.size }
  }

  /** Forgets everything, as a restart would. */
  clear(): void {
    for (const state of [this.#accounts, this.#groupMarks, this.#totals, this.#requests]) state.clear()
  }

  /** undefined: the request is over. */
  reserve(claims: Claims, ask: ReserveRequest, now: number): Verdict | undefined {
    const known = this.#recall(claims.account, ask.id, now)
    if (known === over) return undefined
    const at = known?.admittedAt ?? this.#epoch(now)
    const account = this.#open(claims.account, now)
    const [budgets, counters] = [budgetsOf(claims), this.#totals.of(claims.account, at)]
    const missing = this.#missing(claims, counters, at)
    if (missing !== undefined) return missing
    if (known !== undefined) return this.#reserved(claims, ask.id, known, now)

    const { limits } = claims
    const headroom = this.#headroom(claims, at, now)
    const refused = (by: ClaimName, limit: number, waitMs: number) =>
      refusal({ by, scope: "key" }, limit, waitMs, at, headroom)
    const { held, slots } = account
    const room = limits.tpm - account.tokens.sum - held
    const asked = whole(ask.tokens)
    if (account.requests.sum >= limits.rpm) {
      return refused("requests", limits.rpm, account.requests.waitFor(limits.rpm - 1))
    }
    if (asked > 0 && room <= 0) {
      // What is held may be released unused at any moment: alone it is no reason to wait.
      const counted = held < limits.tpm ? held : 0
      return refused("tokens", limits.tpm, account.tokens.waitFor(limits.tpm - 1 - counted))
    }
    if (ask.slot && slots >= limits.concurrent) return refused("concurrency", limits.concurrent, 1)

    const remainders = budgetNames.flatMap((name, i) => {
      const [budget, counter] = [budgets[i], counters[i]]
      return budget === undefined || counter === undefined
        ? []
        : [{ name, budget, left: budget - counter.tokens, held: counter.held }]
    })
    const full = remainders.filter(({ left }) => left <= 0)
    const spent = full.filter(({ held, left }) => left + held <= 0)
    // What is held may be released unused at any moment: a budget that it alone fills decides last.
    const deciding = spent.length > 0 ? spent : full
    // The one that ends last decides, because the request could not pass before; of equals the account's own.
    const last = periods.findLast((period) => deciding.some(({ name }) => name.period === period))
    const decisive = deciding.find(({ name }) => name.period === last)
    if (asked > 0 && decisive !== undefined) {
      const { budget, name } = decisive
      const waitMs = spent.length > 0 ? 0 : 1
      return refusal({ by: name.period, scope: name.scope }, budget, waitMs, at, headroom)
    }

    const available = Math.max(0, Math.min(room, ...remainders.map(({ left }) => left)))
    const charged = new Set(counters.filter((counter) => counter !== undefined))
    const request: Request = {
      admittedAt: at,
      available,
      slot: ask.slot,
      counted: account.requests.add(1),
      held: Math.max(Math.min(asked, available), leastOf(ask)),
      used: 0,
      noted: [],
      charged
    }
    for (const counter of charged) charge(counter, request.held, request.held)
    account.occupy(ask.id, request, this.#leaseEnd(now))
    this.#remember(claims.account, ask.id, request, now)
    return this.#reserved(claims, ask.id, request, now)
  }

  renew(reservation: Reservation, used: number, want: number, now: number): Renewal {
    const { claims, id } = reservation
    const known = this.#recall(claims.account, id, now)
    if (known === over) return { held: 0, exhausted: true }
    const request = known ?? revive(reservation)
    const account = this.#open(claims.account, now)
    account.leases.delete(id)
    const unusedBefore = request.held - request.used
    account.note(request, Math.max(request.used, whole(used)))

    const least = Math.max(request.held, request.used)
    const [budgets, counters] = [budgetsOf(claims), this.#totals.of(claims.account, request.admittedAt)]
    const room = Math.min(
      claims.limits.tpm - account.tokens.sum - account.held - (least - request.used),
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
    account.occupy(id, request, this.#leaseEnd(now))
    this.#remember(claims.account, id, request, now)
    return { held, exhausted: least + more < wanted }
  }

  settle(reservation: Reservation, used: number, now: number, keepSlot = false): Headroom {
    const { admittedAt, claims, id } = reservation
    const known = this.#recall(claims.account, id, now)
    if (known !== over) {
      const request = known ?? revive(reservation)
      const account = this.#open(claims.account, now)
      account.leases.delete(id)
      const unused = request.held - request.used
      account.note(request, whole(used))
      for (const counter of this.#totals.of(claims.account, request.admittedAt)) {
        if (counter === undefined) continue
        const { exact, tokens } = this.#chargedOn(request, counter)
        if (exact) charge(counter, request.used - tokens, -unused)
        else charge(counter, Math.max(0, request.used - tokens), 0)
      }
      if (keepSlot && request.slot) account.keepSlot(id, this.#leaseEnd(now))
      this.#remember(claims.account, id, over, now)
    }
    return this.#headroom(claims, admittedAt, now)
  }

  renewSlot({ claims, id }: Reservation, now: number): void {
    const known = this.#recall(claims.account, id, now)
    if (known !== over && known !== undefined) return
    const account = this.#open(claims.account, now)
    // It is over and has no slot: the slot was freed, or its lease has ended.
    if (known === over && !account.leases.has(id)) return
    account.keepSlot(id, this.#leaseEnd(now))
    this.#remember(claims.account, id, over, now)
  }

  freeSlot({ claims, id }: Reservation, now: number): void {
    if (this.#recall(claims.account, id, now) !== over) return
    this.#open(claims.account, now).leases.delete(id)
    this.#remember(claims.account, id, over, now)
  }

  cancel(claims: Claims, id: string, now: number): void {
    const request = this.#recall(claims.account, id, now)
    if (request === over) return
    // The request may be forgotten before what it held.
    const account = this.#open(claims.account, now)
    account.leases.delete(id)
    if (request !== undefined) {
      const unused = request.held - request.used
      account.note(request, 0)
      if (request.counted !== undefined) account.requests.take(request.counted)
      for (const counter of this.#totals.of(claims.account, request.admittedAt)) {
        if (counter !== undefined && request.charged.has(counter)) charge(counter, -request.held, -unused)
      }
    }
    this.#remember(claims.account, id, over, now)
  }

  peek(claims: Claims, now: number): Headroom | Missing {
    const at = this.#epoch(now)
    const counters = this.#totals.of(claims.account, at)
    return this.#missing(claims, counters, at) ?? this.#headroom(claims, at, now)
  }

  load(
    owner: CounterOwner,
    counters: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>,
    now: number
  ): void {
    this.#sweep(now)
    for (const { counter, tokens } of counters) this.#totals.load(owner, counter, tokens, this.#epoch(now))
  }

  survey(of: Account, instant: number, now: number): Snapshot {
    const { lapsed, leases, mark } = this.#open(of, now)
    const totals = this.#totals.amounts(of, instant)
    return { totals, open: leases.size - lapsed.length, lapsed: lapsed.slice(0, lapsedMost), mark }
  }

  repair(of: Account, instant: number, mark: number, truth: Amounts, now: number): boolean {
    const account = this.#open(of, now)
    if (account.mark !== mark || account.leases.size > 0) return false
    this.#totals.replace(of, instant, truth, this.#epoch(now))
    account.mark = this.#changes += 1
    return true
  }

  surveyGroup(
    group: string,
    keys: ReadonlyArray<string>,
    instant: number
  ): Pick<Snapshot, "mark" | "open" | "totals"> {
    const holding = keys.filter((key) => (this.#accounts.get(nameOf(group, key))?.leases.size ?? 0) > 0)
    const mark = this.#groupMarks.get(group) ?? 0
    return { totals: this.#totals.amounts({ group }, instant), open: holding.length, mark }
  }

  repairGroup(
    group: string,
    keys: ReadonlyArray<string>,
    instant: number,
    mark: number,
    truth: Amounts,
    now: number
  ): boolean {
    const survey = this.surveyGroup(group, keys, instant)
    if (survey.mark !== mark || survey.open > 0) return false
    this.#totals.replace({ group }, instant, truth, this.#epoch(now))
    this.#groupMarks.set(group, (this.#changes += 1))
    return true
  }

  /** The account as it is now: windows are moved on, and leases that are over have ended. */
  #open({ group, key }: Account, now: number): AccountState {
    this.#sweep(now)
    const name = nameOf(group, key)
    const account = this.#accounts.get(name) ?? new AccountState()
    this.#accounts.set(name, account)
    account.moveTo(now, this.#lives.leaseMs)
    return account
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
    for (const [name, { leases, touchedAt }] of this.#accounts) {
      // Its windows are empty and nothing runs, so it is as new.
      if (leases.size === 0 && touchedAt <= now - keepIdleMs) this.#accounts.delete(name)
    }
    this.#totals.dropOld(this.#epoch(now))
  }

  #recall({ group }: Account, id: string, now: number): Remembered["state"] | undefined {
    const found = this.#requests.get(nameOf(group, id))
    return found === undefined || found.until <= now ? undefined : found.state
  }

  #remember(account: Account, id: string, state: Remembered["state"], now: number): void {
    this.#changes += 1
    this.#groupMarks.set(account.group, this.#changes)
    const changed = this.#accounts.get(nameOf(account.group, account.key))
    if (changed !== undefined) changed.mark = this.#changes
    const name = nameOf(account.group, id)
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

  #missing(
    claims: Claims,
    counters: ReadonlyArray<Counter | undefined>,
    instant: number
  ): Missing | undefined {
    const flags = budgetsOf(claims).map((budget, i) => budget !== undefined && counters[i] === undefined)
    return flags.includes(true) ? missingOf(instant, flags) : undefined
  }

  /** What is left. Budgets are those of the periods that contain `instant`. */
  #headroom(claims: Claims, instant: number, now: number): Headroom {
    const { held, requests, tokens } = this.#open(claims.account, now)
    const counters = this.#totals.of(claims.account, instant)
    return headroomOf(claims, instant, {
      requests: Math.max(0, claims.limits.rpm - requests.sum),
      tokens: Math.max(0, claims.limits.tpm - tokens.sum - held),
      budgets: budgetsOf(claims).map((budget, i) => {
        const counter = counters[i]
        return budget === undefined || counter === undefined ? -1 : Math.max(0, budget - counter.tokens)
      }),
      now: this.#epoch(now),
      requestsResetMs: requests.emptyIn,
      tokensResetMs: held > 0 ? windowMs : tokens.emptyIn
    })
  }

  #reserved(claims: Claims, id: string, request: Request, now: number): Reserved {
    const { admittedAt, available, held, slot } = request
    return new Reserved({
      reservation: { id, claims, held, available, admittedAt, slot },
      headroom: this.#headroom(claims, admittedAt, now)
    })
  }
}
