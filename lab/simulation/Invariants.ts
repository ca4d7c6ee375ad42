/**
 * What holds in every world, by name. Some invariants are checked at the event that would break them, some at every moment at
 * which an account rests, and some when everything is quiet.
 */
import { Option, Schema } from "effect"
import type { AuditRow } from "../../src/audit/rows.ts"
import { outcomes } from "../../src/domain/Outcome.ts"
import { numberOf, utc } from "../../src/domain/Calendar.ts"
import { type Period, periods } from "../../src/domain/Limits.ts"
import { withoutDefaultTag } from "../../src/domain/modelName.ts"
import {
  type Account,
  accountsOf,
  type CounterOwner,
  type Reservation
} from "../../src/domain/Reservation.ts"
import { Fairness } from "./Fairness.ts"
import { breakerFailures, breakerOpenMs, keyFreshnessMs } from "../../test/support/seeded/Gateway.ts"
import type { Call } from "../../test/support/seeded/ModelServer.ts"
import { ownerName } from "../../test/support/seeded/Redis.ts"
import type { StoredIntent } from "../../test/support/twins/Tables.ts"
import type { Process } from "../../test/support/seeded/Simulation.ts"
import { short } from "../../test/support/seeded/Store.ts"
import { Minutes } from "./Minutes.ts"
import { type Ask, type World } from "./World.ts"

export const invariants = {
  "fail closed": "the model server gets no request before its reservation, its place and its intent are made",
  "late call": "the model server gets no request after its lease",
  "one call": "the model server gets a request once",
  "revoked keys": "no request is admitted when its key was revoked more than its second before",
  settings:
    "no request is admitted by limits that were changed more than a second before, or that its end user or model never had",
  "requests a minute": "in no 60 seconds an account, end user or model has more requests than its limit",
  "tokens a minute":
    "no request is admitted, and none holds more, when its account, end user or model has its limit of tokens in 60 seconds",
  slots: "an account or end user has no more requests at the model server than its limit",
  places: "the model server has no more requests than places",
  fairness:
    "shares of tenants that wait stay within a few requests of their weights, when nothing went wrong and all models fit",
  leases: "a request at the model server has a lease, when nothing went wrong",
  remembered: "the queue forgets nobody, when nothing went wrong",
  available: "no request gets a 503, when nothing went wrong",
  freed: "what a request held is free soon after its end, when nothing went wrong",
  aborted: "no request counts as that of a dead process when nothing went wrong",
  alive:
    "nobody ends the requests of a process that lives and was not paused, and everybody ends them at the last note",
  "open circuit": "after five outages in a row the model server is left alone for a while",
  budgets: "no account, tenant, end user or model has spent more than its budget and one prompt",
  counters: "counters at rest are the ledger, when nothing went wrong since they last were",
  books: "when all is quiet: audit and corrections are the ledger, and the ledger is the counters",
  rows: "each request has one row, and the row says what its client got",
  "nothing left": "when all is quiet: no intent, no slot, no hold, no place and no settlement is left",
  answers: "every client that waits gets an answer",
  "works again": "when all is quiet, every gateway answers a new request",
  "no defects": "nothing is logged as an error, and no client gets a 500"
} as const
export type Invariant = keyof typeof invariants

export class Broken extends Error {
  readonly invariant: Invariant
  constructor(invariant: Invariant, why: string) {
    super(why)
    this.invariant = invariant
  }
}

/** A gateway that was late, or a store that lost something, may exceed a bound for so long. */
const troubleMs = 20_000
/** From the decision about a key to its reservation, when the stores answer as they should. */
const onTheWayMs = 200

const Final = Schema.fromJsonString(
  Schema.Struct({ done: Schema.Literal(true), prompt_eval_count: Schema.Finite, eval_count: Schema.Finite })
)
const Completion = Schema.fromJsonString(
  Schema.Struct({ usage: Schema.Struct({ prompt_tokens: Schema.Finite, completion_tokens: Schema.Finite }) })
)
const decodeFinal = Schema.decodeUnknownOption(Final)
const decodeCompletion = Schema.decodeUnknownOption(Completion)

/** The tokens that a client was told at the end of its answer. */
const tokensTold = ({ text }: Ask): number | undefined => {
  const lines = text.split("\n").map((line) => line.replace(/^data: /, ""))
  for (const line of lines.toReversed()) {
    const [final, completion] = [decodeFinal(line), decodeCompletion(line)]
    if (Option.isSome(final)) return final.value.prompt_eval_count + final.value.eval_count
    if (Option.isSome(completion))
      return completion.value.usage.prompt_tokens + completion.value.usage.completion_tokens
  }
  return undefined
}

type Sums = { readonly [P in Period]: number }

/** How the counters of an owner differ from its ledger. */
const differenceOf = (owner: string, totals: Partial<Sums>, spent: Sums): string | undefined => {
  const wrong = periods.find((period) => totals[period] !== undefined && totals[period] !== spent[period])
  return wrong === undefined
    ? undefined
    : `${owner}, ${wrong}: ${totals[wrong]} in the counter, ${spent[wrong]} in the ledger`
}

export class Invariants {
  readonly #world: World
  readonly #fairness: Fairness
  readonly #reserved = new Set<string>()
  readonly #queued = new Set<string>()
  readonly #called = new Set<string>()
  readonly #leasedAt = new Map<string, number>()
  /** outages in a row, and the last of them, by process */
  readonly #outages = new Map<
    Process,
    { readonly count: number; readonly since: number; readonly at: number }
  >()
  /** when the counters of an account were last seen to be right */
  readonly #rightAt = new Map<string, number>()
  /** What was broken first at an event: the gateway must not catch it. */
  broken: Broken | undefined

  constructor(world: World) {
    this.#world = world
    this.#fairness = new Fairness(world.stores.places ?? 0)
    const { model, postgres, redis } = world.stores
    const fairness = this.#fairness
    const minutes = new Minutes()
    postgres.onRow = (row, intent, by) => this.#onRow(row, intent, by)
    model.onCall = (call) => this.#onCall(call)
    model.onSent = (of) => this.#onSent(of)
    model.onOutage = (of) => this.#onOutage(of)
    // It may close the circuit, now or when its end is reported.
    model.onProgress = (of) => this.#outages.delete(of)
    const count = (full: string | undefined) => {
      // What Redis forgot was in its windows too (docs/threat-model.md).
      if (full !== undefined && redis.lostAt < 0)
        this.#fail(full.endsWith("requests") ? "requests a minute" : "tokens a minute", full)
    }
    redis.onlooker = {
      reserved: (reservation) => {
        count(minutes.reserved(reservation, this.#now))
        this.#onReserved(reservation)
      },
      renewed: ({ id }, used, held) => {
        this.#leasedAt.set(id, this.#now)
        count(minutes.renewed(id, used, held, this.#now))
      },
      settled: (id, used) => minutes.ended(id, used, this.#now),
      cancelled: (id) => minutes.ended(id, undefined, this.#now),
      queued: (ticket, answer) => {
        this.#queued.add(ticket.id)
        fairness.queued(ticket, answer)
      },
      told: (messages) => fairness.told(messages),
      gone: (id, used) => {
        this.#queued.delete(id)
        fairness.gone(id, used)
      },
      forgotten: (id) => {
        fairness.gone(id, 0)
        if (world.isHarmless && this.#queued.has(id))
          this.#fail("remembered", `the queue does not know ${short(id)}`)
      }
    }
  }

  #fail(invariant: Invariant, why: string): void {
    this.broken ??= new Broken(invariant, why)
  }

  get #now(): number {
    return this.#world.simulation.now
  }

  #isCalm(forMs = troubleMs): boolean {
    return this.#now - this.#world.lastTrouble > forMs
  }

  #onRow(
    { error_type, request_id: id, tokens_in, tokens_out }: AuditRow,
    intent: StoredIntent | undefined,
    by: Process
  ): void {
    if (error_type !== outcomes.aborted.type || intent === undefined) return
    const [noted, charged] = [intent.tokens_in + intent.tokens_out, tokens_in + tokens_out]
    if (charged !== noted)
      this.#fail("alive", `${by.name} ends ${short(id)} with ${charged} tokens, and ${noted} were noted`)
    const ask = this.#world.asks.find((one) => one.id === id)
    const of = ask?.gateway.process
    // What was refused while its row could not be written is over, and its intent is no longer renewed.
    if (ask?.ended === true) return
    const wasPaused = (of?.pausedUntil ?? 0) > this.#now - 1000 * this.#world.stores.leaseS
    if (of !== undefined && !of.isDead && (by === of || !wasPaused))
      this.#fail("alive", `${by.name} ends ${short(id)} of ${of.name}`)
  }

  #onReserved({ claims, id }: Reservation): void {
    this.#reserved.add(id)
    this.#leasedAt.set(id, this.#now)
    const { postgres, redis } = this.#world.stores
    for (const { account, limits } of accountsOf(claims)) {
      const { lapsed, open } = redis.counters.survey(account, 0, this.#now)
      if (open > limits.concurrent + lapsed.length)
        this.#fail("slots", `${open} slots of ${ownerName(account)}, which may have ${limits.concurrent}`)
      const most = this.#world.most.get(`${this.#world.nameOf(account)} rpm`) ?? limits.rpm
      if (limits.rpm > most)
        this.#fail("settings", `${ownerName(account)} may have ${limits.rpm} requests a minute, not ${most}`)
    }
    const ask = this.#world.asks.findLast((one) => one.id === id)
    if (ask?.key === undefined) return
    const { epoch } = this.#world.simulation
    const revokedAt = (postgres.revoked.get(ask.key.prefix) ?? Number.POSITIVE_INFINITY) - epoch
    // The key is checked before the body is waited for. Only Redis is asked after that, unless counters are loaded.
    const isLoaded =
      (redis.loadedAt.get(ownerName({ group: ask.key.tenantId, key: ask.key.account })) ?? this.#now) < ask.at
    const isSoon =
      ask.bodyAt - ask.at <= 10 &&
      (this.#isCalm(5000) || (isLoaded && this.#world.redisTrouble < this.#now - 5000))
    const decidedAt = Math.max(ask.at, isSoon ? this.#now - onTheWayMs : 0)
    if (decidedAt > revokedAt + keyFreshnessMs)
      this.#fail(
        "revoked keys",
        `${short(id)} is admitted ${Math.round(this.#now - revokedAt)} ms after its key ${ask.key.id} was revoked`
      )
    const changed = postgres.changed.get(ask.key.tenantId)
    if (changed !== undefined && decidedAt > changed.at + keyFreshnessMs && claims.limits.rpm !== changed.rpm)
      this.#fail(
        "settings",
        `${short(id)} may have ${claims.limits.rpm} requests a minute ${Math.round(this.#now - changed.at)} ms after they became ${changed.rpm}`
      )
  }

  #onOutage(of: Process): void {
    // A pause may come between the outage and its report.
    const before = of.pausedUntil < this.#now - 100 ? this.#outages.get(of) : undefined
    const { count, since } = before ?? { count: 0, since: this.#now }
    this.#outages.set(of, { count: count + 1, since, at: this.#now })
  }

  #onSent(of: Process): void {
    const { at, count, since } = this.#outages.get(of) ?? { at: 0, count: 0, since: 0 }
    const agoMs = this.#now - at
    // Outages of calls that were on their way when the circuit opened come a little later.
    if (count < breakerFailures || agoMs <= 10 || agoMs >= breakerOpenMs - 100) return
    // An answer ends the streak when it ends, which may be after the outages of others.
    if (
      this.#world.asks.some((one) => one.gateway.process === of && one.status === 200 && one.overAt > since)
    )
      return
    this.#fail(
      "open circuit",
      `${of.name} calls the model server ${Math.round(agoMs)} ms after ${count} outages in a row`
    )
  }

  #onCall(call: Call): void {
    const { asks, crashedAt, most, stores } = this.#world
    const { postgres } = stores
    const { arrival, caller, model, place } = call.facts
    const { model: ofModel, user } = call.facts.reservation.claims
    const { requestId: id } = arrival
    const since = asks.findLast((one) => one.id === id)?.at ?? 0
    if (!this.#reserved.has(id)) this.#fail("fail closed", `${short(id)} has no reservation`)
    const rpm = most.get(`${caller.accountId} model ${withoutDefaultTag(model.name)} rpm`)
    if (ofModel === undefined && rpm !== undefined && Number.isFinite(rpm))
      this.#fail("settings", `${short(id)} has no limits for ${model.name}, and its key always had some`)
    if (stores.places !== undefined && (place === undefined || !this.#queued.has(id)))
      this.#fail("fail closed", `${short(id)} has no place`)
    if (!postgres.tables.intents.has(id) && !postgres.tables.audit.has(id) && crashedAt < since)
      this.#fail("fail closed", `${short(id)} has no intent`)
    const leasedMs = this.#now - (this.#leasedAt.get(id) ?? 0)
    if (leasedMs > 1000 * stores.leaseS + 20)
      this.#fail("late call", `${short(id)} comes ${Math.round(leasedMs)} ms after its lease began`)
    if (this.#called.has(id)) this.#fail("one call", `${short(id)} is called again`)
    this.#called.add(id)
    if (!this.#isCalm()) return
    const running = [...stores.model.running.values()]
    if (stores.places !== undefined && running.length >= stores.places)
      this.#fail("places", `${running.length + 1} requests at ${stores.places} places`)
    for (const limitOf of [
      ({ facts }: Call) =>
        facts.caller.accountId === caller.accountId ? facts.caller.limits.concurrent : undefined,
      ({ facts: { reservation } }: Call) =>
        user !== undefined && reservation.claims.user?.id === user.id
          ? reservation.claims.user.limits.concurrent
          : undefined
    ]) {
      const limits = [call, ...running].flatMap((one) => limitOf(one) ?? [])
      if (limits.length > Math.max(1, ...limits))
        this.#fail(
          "slots",
          `${limits.length} requests of ${caller.accountId}, which may have ${Math.max(...limits)}`
        )
    }
  }

  /** An open circuit refuses too: this holds where the model server never fails. */
  #checkAvailable(): void {
    if (![...this.#world.possible].every((fault) => fault === "clients leave")) return
    const { audit } = this.#world.stores.postgres.tables
    // The check of secrets has a bound too: strangers may fill it. The row says so, and may come after the answer.
    const refused = this.#world.asks.find(({ id, status }) => {
      const row = status === 503 ? audit.get(id) : undefined
      return row !== undefined && row.detail !== "gate: KeyStore, crowded"
    })
    if (refused !== undefined) throw new Broken("available", `${short(refused.id)} gets ${refused.text}`)
  }

  /** Between two events. */
  check(): void {
    const { alive, asks, errors, simulation, stores } = this.#world
    const [error] = errors
    if (error !== undefined) throw new Broken("no defects", error)
    const { worst } = this.#fairness
    // A turn of a model is longer than the bound.
    if (worst > 1 && this.#world.isHarmless && stores.loadedModels !== undefined)
      throw new Broken("fairness", `shares are apart by ${worst.toFixed(2)} of the bound`)
    const { model, postgres, redis } = stores
    this.#checkAvailable()
    for (const { facts, id } of model.running.values())
      if (
        facts.reservation.slot &&
        this.#world.isHarmless &&
        simulation.now > (this.#leasedAt.get(id) ?? 0) + 1000 * stores.leaseS
      )
        throw new Broken("leases", `${short(id)} runs beyond its lease`)
    if (alive.some(({ running }) => (running?.backlog() ?? 0) > 0)) return
    const today = this.#today
    for (const account of this.accounts()) {
      const { key, user } = account
      const owner = ownerName(account)
      const isOpen = [...postgres.tables.intents.values()].some(({ key_id, user_account }) =>
        user === undefined ? postgres.tables.accountOf(key_id) === key : user_account === user
      )
      const { lapsed, open, totals } = redis.counters.survey(
        account,
        simulation.epoch + simulation.now,
        simulation.now
      )
      const living = asks.filter(
        (ask) =>
          ask.key?.account === key &&
          (user === undefined || ask.user === user) &&
          !ask.lost &&
          ask.overAt > simulation.now - 1000
      ).length
      if (open + lapsed.length > living && this.#isCalm())
        throw new Broken(
          "freed",
          `${owner} has ${open + lapsed.length} slots or holds for ${living} requests of the last second`
        )
      if (isOpen || open > 0 || lapsed.length > 0) continue
      const spent = this.#world.stores.postgres.tables.spent(account, today)
      const wrong = differenceOf(owner, totals, spent)
      if (wrong === undefined) this.#rightAt.set(owner, simulation.now)
      else if (this.#isCertain(account) && !this.#isBeingCorrected(key)) throw new Broken("counters", wrong)
    }
  }

  /**
   * Whether nothing excuses a difference: a load may count open requests once more, to be safe, and requests of the second in which
   * a model or an end user gets limits may not be counted for it.
   */
  #isCertain(account: Account): boolean {
    const owner = ownerName(account)
    const rightAt = this.#rightAt.get(owner) ?? Number.NEGATIVE_INFINITY
    const { lastTrouble, ruledAt, stores } = this.#world
    const { lostAt, loadedAt } = stores.redis
    const ruled = (ruledAt.get(account.key) ?? Number.NEGATIVE_INFINITY) + 5 * keyFreshnessMs
    return rightAt > Math.max(lastTrouble, lostAt, loadedAt.get(owner) ?? 0, ruled)
  }

  /** The date in the zone of the gateways. */
  get #today(): string {
    const { simulation, stores } = this.#world
    return stores.calendar.dayAt(simulation.epoch + simulation.now).date
  }

  /** Whether a gateway still ends a request of the account that another one has closed: the ledger is corrected before the counters. */
  #isBeingCorrected(account: string): boolean {
    const { asks, simulation, stores } = this.#world
    const { audit, corrections } = stores.postgres.tables
    return asks.some(
      ({ gateway, id, key, overAt }) =>
        key?.account === account &&
        !gateway.process.isDead &&
        audit.get(id)?.error_type === outcomes.aborted.type &&
        (!corrections.has(id) || overAt > simulation.now - 1000)
    )
  }

  /** Each account, then those of end users and of models with limits, as the counters name them. */
  accounts(): ReadonlyArray<Account> {
    const found = new Map<string, Account>()
    for (const { account: key, tenantId: group } of this.#world.stores.postgres.keys.values())
      found.set(key, { group, key })
    const ofUsers = [...this.#world.users].flatMap(([user, { account }]) => {
      const owner = found.get(account)
      return owner === undefined ? [] : [{ ...owner, user }]
    })
    const ofModels = new Map<string, Account>()
    const { keys, tenants } = this.#world.stores.postgres
    for (const { account: key, settings, tenantId: group } of keys.values())
      for (const { name: model } of [
        ...(tenants.get(group)?.settings.modelRules ?? []),
        ...settings.modelRules
      ])
        ofModels.set(`${key} ${model}`, { group, key, model })
    return [...found.values(), ...ofUsers, ...ofModels.values()]
  }

  #isOfTheDead(id: string): boolean {
    const { killedAt, stores } = this.#world
    const { loggedAt, tables } = stores.postgres
    // Whoever closes it has its account compared, and may die before that.
    const isClosed =
      tables.audit.get(id)?.error_type === outcomes.aborted.type && (loggedAt.get(id) ?? 0) > killedAt
    return !isClosed && this.#world.asks.some((ask) => ask.id === id && ask.gateway.process.isDead)
  }

  /**
   * Why it is not quiet yet; undefined: it is. What a dead process held without an intent comes back after the next request of
   * its account (docs/audit.md). `wasAskedAgain`: each account had one.
   */
  unrest(wasAskedAgain: boolean): readonly [Invariant, string] | undefined {
    const { alive, asks, ruledAt, simulation, stores } = this.#world
    const { model, postgres, redis } = stores
    this.#checkAvailable()
    const waiting = asks.find(({ ended, left, lost }) => !ended && !left && !lost)
    if (waiting !== undefined)
      return ["answers", `client${waiting.number} waits for the end of ${short(waiting.id)}`]
    if (alive.some(({ running }) => running === undefined))
      return ["works again", "a gateway has not started"]
    if (model.running.size > 0) return ["nothing left", "the model server works"]
    for (const { process, running } of alive) {
      const backlog = running?.backlog() ?? 0
      if (backlog > 0) return ["nothing left", `${process.name} has ${backlog} settlements that wait`]
    }
    const [intent] = postgres.tables.intents.keys()
    if (intent !== undefined) return ["nothing left", `the intent of ${short(intent)} is open`]
    const rowless = asks.find((ask) => this.#lacksRow(ask))
    if (rowless !== undefined)
      return ["rows", `no row of ${short(rowless.id)}, which got ${rowless.status ?? "nothing"}`]
    const queue = redis.queue.scheduler(simulation.now)
    if (queue.running + queue.waiting > 0)
      return [
        "nothing left",
        `${queue.running} places and ${queue.waiting} waiting requests are left in the queue`
      ]
    const [now, today] = [simulation.epoch + simulation.now, this.#today]
    const waitingTenants = new Set<string>()
    for (const account of this.accounts()) {
      const { group } = account
      const { lapsed, open, totals } = redis.counters.survey(account, now, simulation.now)
      if (open === 0 && lapsed.length > 0 && !wasAskedAgain && lapsed.every((id) => this.#isOfTheDead(id))) {
        waitingTenants.add(group)
        continue
      }
      if (open + lapsed.length > 0)
        return [
          "nothing left",
          `${ownerName(account)} has ${open} slots or holds, and ${lapsed.map(short).join(" ")} whose lease has ended`
        ]
      const wrong = differenceOf(ownerName(account), totals, postgres.tables.spent(account, today))
      // What a model used while it had no limits counts after its next request (docs/run.md).
      const isKnown = account.model === undefined || !ruledAt.has(account.key) || wasAskedAgain
      if (wrong !== undefined && isKnown) return ["books", wrong]
    }
    for (const group of postgres.tenants.keys()) {
      if (waitingTenants.has(group)) continue
      const accounts = this.accounts().flatMap((one) =>
        one.group === group && one.user === undefined && one.model === undefined ? [one.key] : []
      )
      const { totals } = redis.counters.survey({ group, accounts }, now, simulation.now)
      const wrong = differenceOf(group, totals, postgres.tables.spent({ group }, today))
      if (wrong !== undefined) return ["books", wrong]
    }
    return undefined
  }

  /** When all is quiet. */
  checkBooks(): void {
    const { audit, corrections, ledger } = this.#world.stores.postgres.tables
    const aborted = [...audit.values()].find(({ error_type }) => error_type === outcomes.aborted.type)
    if (aborted !== undefined && this.#world.isHarmless)
      throw new Broken("aborted", `${short(aborted.request_id)} was closed by another gateway`)
    const sums = new Map<string, number>()
    const add = (name: string, tokens: number) => sums.set(name, (sums.get(name) ?? 0) + tokens)
    for (const { admitted_at, day, key_id, tokens_in, tokens_out } of audit.values())
      if (admitted_at !== null && key_id !== null) add(`${key_id} ${day}`, tokens_in + tokens_out)
    for (const { day, key_id, tokens_in, tokens_out } of corrections.values())
      add(`${key_id} ${day}`, tokens_in + tokens_out)
    for (const [name, { tokens }] of ledger)
      if (tokens !== (sums.get(name) ?? 0))
        throw new Broken(
          "books",
          `${name}: ${tokens} in the ledger, ${sums.get(name) ?? 0} in audit and corrections`
        )
    for (const [name, tokens] of sums)
      if (!ledger.has(name) && tokens !== 0) throw new Broken("books", `${name}: not in the ledger`)
    for (const ask of this.#world.asks) this.#checkRow(ask)
  }

  /** Before anybody gets more room. */
  checkBudgets(): void {
    const { most, stores } = this.#world
    const { accountOf, audit, ledger, usage, userLedger } = stores.postgres.tables
    // After a loss the counters may miss what was reserved and had no intent (docs/threat-model.md).
    if (!this.#world.isHarmless) return
    const prompts = Math.max(0, ...[...audit.values()].map(({ tokens_in }) => tokens_in)) + 1
    const spent = new Map<string, number>()
    const add = (owner: CounterOwner, period: Period, day: string, tokens: number) => {
      const name = `${this.#world.nameOf(owner)} ${period}@${utc.dayNumbered(numberOf(day)).counters[period]}`
      spent.set(name, (spent.get(name) ?? 0) + tokens)
    }
    for (const { day, key_id, tenant_id: group, tokens } of ledger.values())
      for (const period of periods) {
        add({ group }, period, day, tokens)
        add({ group, key: accountOf(key_id) }, period, day, tokens)
      }
    for (const { day, key_id, model, tenant_id: group, tokens } of usage.values())
      add({ group, key: accountOf(key_id), model: withoutDefaultTag(model ?? "") }, "day", day, tokens)
    for (const { day, key_id, tenant_id: group, tokens, user_account } of userLedger.values())
      add({ group, key: accountOf(key_id), user: user_account ?? "" }, "day", day, tokens)
    for (const [name, tokens] of spent) {
      const budget = most.get(name.split("@")[0] ?? "") ?? Number.POSITIVE_INFINITY
      if (tokens > budget + prompts) throw new Broken("budgets", `${name}: ${tokens} of ${budget}`)
    }
  }

  /** Whether the row of a request must still come. That of a refusal, or of a client that left, may come after the answer. */
  #lacksRow(ask: Ask): boolean {
    const { crashedAt, stores } = this.#world
    const { audit } = stores.postgres.tables
    if (ask.id === "" || audit.has(ask.id)) return false
    // The end of the process may lose it.
    const isOver = ask.lost || ask.left || (ask.status ?? 0) >= 400
    if (ask.gateway.process.isDead && isOver && (!this.#called.has(ask.id) || crashedAt > ask.at))
      return false
    return ![...audit.values()].some(
      ({ repeats, status }) => repeats > 1 && status === (ask.left ? 499 : ask.status)
    )
  }

  #checkRow(ask: Ask): void {
    const { audit, corrections } = this.#world.stores.postgres.tables
    const [row, correction] = [audit.get(ask.id), corrections.get(ask.id)]
    const name = `${short(ask.id)}, which got ${ask.status ?? "nothing"}`
    if (ask.status === 500) throw new Broken("no defects", name)
    if (row === undefined) return
    if (row.admitted_at !== null && row.user_account !== (ask.user ?? null))
      throw new Broken("rows", `the row of ${name}, is charged to another end user`)
    const status = correction?.status ?? row.status
    // A process that was late with a row said 503, and died before the row was written.
    if (ask.gateway.process.isDead && row.error_type === outcomes.aborted.type && ask.status === 503) return
    const told = ask.ended && ask.status === 200 ? tokensTold(ask) : undefined
    const isWhole = told !== undefined
    if (ask.ended && !ask.left && (ask.status !== 200 || isWhole) && status !== ask.status)
      throw new Broken("rows", `the row of ${name}, says ${status}`)
    const charged =
      row.tokens_in +
      row.tokens_out +
      (correction === undefined ? 0 : correction.tokens_in + correction.tokens_out)
    if (isWhole && charged !== told)
      throw new Broken("rows", `the row of ${name}, has ${charged} tokens, the client was told ${told}`)
    if (ask.ended && !ask.left && ask.status !== 200 && charged > 0 && !this.#called.has(ask.id))
      throw new Broken(
        "rows",
        `the row of ${name}, has ${charged} tokens, and the model server was not called`
      )
  }
}
