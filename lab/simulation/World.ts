/**
 * The world of one seed: gateways, stores, clients, administrators and faults. Each seed has its own weather: some faults never
 * happen in it, and a fifth of the seeds has none, so that nothing excuses a difference there.
 */
import { utc } from "../../src/domain/Calendar.ts"
import { userAccountId } from "../../src/domain/EndUser.ts"
import { type KeyAttributes, newKey, newTenant, type TenantAttributes } from "../../src/domain/attributes.ts"
import type { CounterOwner } from "../../src/domain/Reservation.ts"
import { midnights } from "../../test/support/midnights.ts"
import { Incoming, Outgoing } from "../../test/support/seeded/Exchange.ts"
import { ModelServer } from "../../test/support/seeded/ModelServer.ts"
import { type KeyRow, Postgres, type TenantRow } from "../../test/support/seeded/Postgres.ts"
import { Redis } from "../../test/support/seeded/Redis.ts"
import { Process, Simulation, type Told } from "../../test/support/seeded/Simulation.ts"
import { short, type Store } from "../../test/support/seeded/Store.ts"
import { type Fault, faultNames, faults, isHarmless } from "./Faults.ts"
import {
  keyNamespace,
  queueMaxWaitMs,
  type Running,
  startGateway,
  type Stores
} from "../../test/support/seeded/Gateway.ts"

export interface Gateway {
  readonly process: Process
  running: Running | undefined
}

/** What became of a request, as its client sees it. */
const unanswered = {
  id: "",
  text: "",
  ended: false,
  left: false,
  /** when it ended or its client left */
  overAt: Number.POSITIVE_INFINITY,
  /** the gateway died before the end */
  lost: false
}
type Answer = typeof unanswered

export interface Ask extends Answer {
  readonly number: number
  readonly gateway: Gateway
  readonly key: KeyRow | undefined
  /** the account of its end user */
  readonly user: string | undefined
  readonly at: number
  /** when its body was whole */
  bodyAt: number
  status: number | undefined
}

/** Who asks; by default anybody. */
interface Asking {
  readonly key?: KeyRow
  readonly user?: string | undefined
  readonly model?: string | undefined
  /** This gateway works, and the client stays. */
  readonly settled?: Gateway
}

const models = ["m", "n"]
/** End users of the keys that have some. */
const people = ["ann", "bob", ""]

const noon = { calendar: utc, at: Date.parse("2026-06-17T12:00:00Z") }

/** Milliseconds between two requests at most. Counters are compared while an account rests, and limits are reached while it does not. */
const paces = [30, 100, 250, 1000, 6000]

export class World {
  readonly simulation: Simulation
  readonly stores: Stores
  readonly gateways: Array<Gateway> = []
  readonly asks: Array<Ask> = []
  readonly possible: ReadonlySet<Fault>
  /** the largest bounds that an owner of counters ever had, by `nameOf` it and the bound */
  readonly most = new Map<string, number>()
  /** when the limits of an account for a model last began, changed or ended */
  readonly ruledAt = new Map<string, number>()
  /** when something was last wrong with a process */
  #troubledAt = Number.NEGATIVE_INFINITY
  crashedAt = Number.NEGATIVE_INFINITY
  killedAt = Number.NEGATIVE_INFINITY
  /** the accounts of end users, by id */
  readonly users = new Map<string, { readonly account: string; readonly name: string }>()
  /** what gateways logged as an error */
  readonly errors: Array<string> = []
  isActive = true
  readonly #isCrowded: boolean
  #keys = 0

  /** `without`: faults that do not happen. */
  constructor(seed: number, without: ReadonlySet<string> = new Set(), tell?: (told: Told) => void) {
    const night = seed % 4 === 0 ? midnights[(seed / 4) % midnights.length] : undefined
    const { at, calendar } = night ?? noon
    const simulation = new Simulation(seed, at - 1000 * (seed % 30), tell)
    const { dice } = simulation
    this.simulation = simulation
    // Most invariants are strict where stores and processes work, so half of the worlds are such.
    const [isQuiet, isFair, isMixed] = [dice.chance(0.2), dice.chance(0.4), dice.chance(0.6)]
    const worst = dice.pick(faultNames.filter((fault) => !isHarmless(fault)))
    const happens = (fault: Fault): boolean =>
      isHarmless(fault) ? dice.chance(0.5) : !isFair && (isMixed ? dice.chance(0.4) : fault === worst)
    this.possible = new Set(
      isQuiet ? [] : faultNames.filter((fault) => happens(fault) && !without.has(fault))
    )
    // A short lease ends often, and a long one hardly ever.
    const leaseS = dice.pick([3, 6]) ?? 6
    const paceMs = dice.pick(paces) ?? 250
    // In a crowd both tenants wait for few places, and their requests are short.
    this.#isCrowded = paceMs < 100
    const places = this.#isCrowded ? dice.between(1, 2) : dice.chance(0.3) ? undefined : dice.between(1, 4)
    this.stores = {
      postgres: new Postgres(simulation),
      redis: new Redis(simulation, leaseS, places === undefined ? 0 : queueMaxWaitMs, calendar),
      model: new ModelServer(simulation),
      calendar,
      leaseS,
      places,
      loadedModels: this.#isCrowded ? 2 : undefined
    }
    for (let i = 0; i < 2; i += 1) {
      const tenant = this.#addTenant(`tenant${i}`)
      for (let n = dice.between(1, 2); n > 0; n -= 1) this.addKey(tenant)
    }
    for (let n = dice.pick([2, 2, 3, 5]) ?? 2; n > 0; n -= 1) this.start()
    this.#every(10, paceMs, () => this.ask())
    this.#every(200, 2000, () => this.#administer())
    const fail = () => faults[dice.pick([...this.possible]) ?? "clients leave"](this)
    if (this.possible.size > 0) this.#every(100, 3000, fail)
    simulation.say(
      "world",
      `${this.gateways.length} gateways, ${places ?? "any number of"} places, faults: ${[...this.possible].join(", ") || "none"}`
    )
  }

  get alive(): ReadonlyArray<Gateway> {
    return this.gateways.filter(({ process }) => !process.isDead)
  }

  /** Whether nothing goes wrong with a store or a process. */
  get isHarmless(): boolean {
    return [...this.possible].every(isHarmless)
  }

  /** When a store or a process last did not work as it should. */
  get lastTrouble(): number {
    return Math.max(this.redisTrouble, this.#troubleOf(this.stores.postgres))
  }

  /** The same without Postgres. */
  get redisTrouble(): number {
    const pauses = this.alive.map(({ process }) => process.pausedUntil)
    return Math.max(this.#troubledAt, this.#troubleOf(this.stores.redis), ...pauses)
  }

  #troubleOf({ losesReplies, state, troubledAt }: Store): number {
    return state === "well" && losesReplies === 0 ? troubledAt : this.simulation.now
  }

  #every(least: number, most: number, work: () => void): void {
    const { simulation } = this
    const wait = (): void =>
      void simulation.after(simulation.dice.between(least, most), undefined, () => {
        if (!this.isActive) return
        work()
        wait()
      })
    wait()
  }

  #addTenant(name: string): TenantRow {
    const { dice } = this.simulation
    const settings = {
      ...newTenant,
      rpm: dice.chance(0.2) ? dice.between(3, 30) : dice.between(30, 500),
      tpm: dice.chance(0.2) ? dice.between(200, 2000) : 1_000_000,
      concurrent: dice.between(1, 6),
      weight: dice.pick([1, 1, 4]) ?? 1,
      allowAllModels: true,
      budgetDaily: dice.chance(0.2) ? dice.between(300, 6000) : null,
      budgetWeekly: dice.chance(0.2) ? dice.between(300, 8000) : null,
      modelRules: dice.chance(0.3) ? [this.#ruleOf(dice.pick(models) ?? "m")] : []
    }
    const tenant = { id: `tenant-${name}`, name, settings }
    this.stores.postgres.tenants.set(tenant.id, tenant)
    return tenant
  }

  /** What a model or an end user may use. */
  #ruleOf(name: string) {
    const { dice } = this.simulation
    return { name, rpm: dice.between(5, 60), tpm: dice.between(500, 10_000), daily: dice.between(100, 1500) }
  }

  #newKey(): KeyAttributes {
    const { dice } = this.simulation
    return {
      ...newKey,
      budgetDaily: dice.chance(0.3) ? dice.between(100, 5000) : null,
      budgetWeekly: dice.chance(0.2) ? dice.between(300, 6000) : null,
      budgetTotal: dice.chance(0.2) ? dice.between(500, 8000) : null,
      modelRules: dice.chance(0.3) ? [this.#ruleOf("m")] : [],
      ...(dice.chance(0.3)
        ? {
            endUserHeader: "x-user",
            eachUserConcurrent: dice.between(1, 3),
            eachUserDaily: dice.chance(0.5) ? dice.between(100, 2000) : null,
            userRules: dice.chance(0.5) ? [this.#ruleOf("ann")] : []
          }
        : {})
    }
  }

  /** `account`: the account of the key that it replaces. */
  addKey(tenant: TenantRow, settings = this.#newKey(), account?: string): KeyRow {
    this.#keys += 1
    const prefix = `${keyNamespace}key${String(this.#keys).padStart(6, "0")}`
    const id = `key-${this.#keys}`
    const secret = prefix.padEnd(44, "a")
    const key = { id, prefix, secret, tenantId: tenant.id, account: account ?? id, settings }
    this.stores.postgres.keys.set(prefix, key)
    this.#noteBounds()
    return key
  }

  nameOf({ group, key = group, model, user }: CounterOwner): string {
    if (model !== undefined) return `${key} model ${model}`
    return user === undefined ? key : `${key} user ${this.users.get(user)?.name}`
  }

  /** No bound is the largest, also when there is one later. */
  #noteBounds(): void {
    const { keys, tenants } = this.stores.postgres
    const note = (owner: string, bounds: Readonly<Record<string, number | null | undefined>>) => {
      for (const [bound, most] of Object.entries(bounds)) {
        const name = `${owner} ${bound}`
        this.most.set(name, Math.max(this.most.get(name) ?? 0, most ?? Number.POSITIVE_INFINITY))
      }
    }
    const budgetsOf = ({ budgetDaily, budgetTotal, budgetWeekly }: KeyAttributes | TenantAttributes) => ({
      day: budgetDaily,
      week: budgetWeekly,
      total: budgetTotal
    })
    for (const { id, settings } of tenants.values()) note(id, budgetsOf(settings))
    for (const { account: key, settings, tenantId } of keys.values()) {
      note(key, budgetsOf(settings))
      const rules = [...(tenants.get(tenantId)?.settings.modelRules ?? []), ...settings.modelRules]
      for (const model of models) {
        const rule = rules.findLast(({ name }) => name === model)
        note(`${key} model ${model}`, { day: rule?.daily, rpm: rule?.rpm })
      }
      for (const person of people) {
        const rule = settings.userRules.find(({ name }) => name === person)
        note(`${key} user ${person}`, { day: rule?.daily ?? settings.eachUserDaily, rpm: rule?.rpm })
      }
    }
  }

  /** Changes all keys of an account. */
  #change(account: string, change: Partial<KeyAttributes>): void {
    const { keys } = this.stores.postgres
    for (const key of keys.values())
      if (key.account === account) keys.set(key.prefix, { ...key, settings: { ...key.settings, ...change } })
    this.#noteBounds()
  }

  start(): void {
    const { simulation } = this
    const process = new Process(
      simulation,
      `gateway${this.gateways.length + 1}`,
      simulation.dice.between(-20, 20)
    )
    const gateway: Gateway = { process, running: undefined }
    process.onLog = (level, text) => {
      simulation.say(process.name, `logs ${level}: ${text}`)
      // A row that cannot be decoded is a defect, of the gateway or of the twin.
      if (level === "Error" || level === "Fatal" || text.includes("SchemaError"))
        this.errors.push(`${process.name}: ${text}`)
    }
    this.gateways.push(gateway)
    startGateway(process, this.stores, (running) => {
      gateway.running = running
      simulation.say(process.name, "is ready")
    })
  }

  kill(gateway: Gateway): void {
    const { simulation, stores } = this
    gateway.process.isDead = true
    this.#troubledAt = simulation.now
    this.killedAt = simulation.now
    simulation.say(gateway.process.name, "dies")
    for (const ask of this.asks) if (ask.gateway === gateway && !ask.ended && !ask.left) ask.lost = true
    for (const [id, call] of stores.model.running)
      if (call.of === gateway.process) stores.model.running.delete(id)
    simulation.after(simulation.dice.between(100, 3000), undefined, () => this.start())
  }

  pause({ process }: Gateway, ms: number): void {
    if (!this.isActive) return
    process.pausedUntil = this.simulation.now + ms
    this.#troubledAt = process.pausedUntil
    this.simulation.say(process.name, `is paused for ${ms} ms`)
  }

  #administer(): void {
    const { dice } = this.simulation
    const { postgres } = this.stores
    const usable = [...postgres.keys.values()].filter(({ prefix }) => !postgres.revoked.has(prefix))
    const key = dice.pick(usable)
    const tenant = postgres.tenants.get(key?.tenantId ?? "")
    if (key === undefined || tenant === undefined) return
    const says = (what: string) => this.simulation.say("admin", what)
    switch (dice.below(7)) {
      case 0: {
        const modelRules = tenant.settings.modelRules.map(({ name }) => this.#ruleOf(name))
        const limits = { rpm: dice.between(30, 500), concurrent: dice.between(1, 6), modelRules }
        const settings = { ...tenant.settings, ...limits }
        postgres.changeTenant({ ...tenant, settings })
        this.#noteBounds()
        return says(
          `changes the limits of ${tenant.name}: ${settings.rpm} requests a minute, ${settings.concurrent} at a time`
        )
      }
      case 1: {
        const budgetDaily = dice.chance(0.8) ? dice.between(100, 4000) : null
        const eachUserDaily =
          key.settings.endUserHeader !== null && dice.chance(0.5) ? dice.between(100, 2000) : null
        this.#change(key.account, { budgetDaily, eachUserDaily })
        return says(`changes the daily budget of ${key.id} to ${budgetDaily ?? "none"}`)
      }
      case 2: {
        const next = this.addKey(tenant, key.settings, key.account)
        return says(`rotates ${key.id}: ${next.id}`)
      }
      case 3: {
        // It ends while its secret is compared for the first time.
        const next = this.addKey(tenant)
        this.simulation.after(dice.between(20, 2000), undefined, () => {
          if (!this.isActive) return
          postgres.revoke(next.prefix)
          says(`revokes ${next.id}`)
        })
        says(`makes ${next.id}`)
        return void this.ask({ key: next })
      }
      case 4: {
        const userRules = key.settings.endUserHeader === null ? [] : [this.#ruleOf("ann")]
        const modelRules = dice.chance(0.7) ? [this.#ruleOf("m")] : []
        this.#change(key.account, { modelRules, userRules })
        this.ruledAt.set(key.account, this.simulation.now)
        return says(
          `gives ${key.id} ${modelRules.length} limits for models and ${userRules.length} for users`
        )
      }
      default:
        // The last key goes on, so that there is something to see.
        if (usable.length < 2 || dice.chance(0.6)) return undefined
        postgres.revoke(key.prefix)
        return says(`revokes ${key.id}`)
    }
  }

  /** A client asks a gateway. */
  ask(asking: Asking = {}): Ask | undefined {
    const { simulation, stores } = this
    const { dice } = simulation
    const gateway = asking.settled ?? dice.pick(this.alive)
    if (gateway?.running === undefined) return undefined
    const key = asking.key ?? (dice.chance(0.05) ? undefined : dice.pick([...stores.postgres.keys.values()]))
    const name = asking.user ?? dice.pick(people) ?? ""
    const user =
      key === undefined || key.settings.endUserHeader === null ? undefined : userAccountId(key.account, name)
    if (key !== undefined && user !== undefined) this.users.set(user, { account: key.account, name })
    const { now } = simulation
    const [number, status] = [this.asks.length + 1, undefined]
    const ask: Ask = { ...unanswered, number, gateway, key, user, at: now, bodyAt: now, status }
    this.asks.push(ask)
    const head = {
      host: "gateway",
      authorization: `Bearer ${key?.secret ?? (dice.chance(0.5) ? `${keyNamespace}nobody`.padEnd(44, "z") : "?")}`,
      ...(user === undefined || name === "" ? {} : { "x-user": name })
    }
    if (asking.key === undefined && dice.chance(0.05)) this.#send(ask, "GET", "/api/tags", head, undefined)
    else this.#chat(ask, head, asking)
    return ask
  }

  /** A settled one asks for as little as is enough for an answer. */
  #chat(ask: Ask, head: Readonly<Record<string, string>>, { model, settled }: Asking): void {
    const { dice } = this.simulation
    const isSettled = settled !== undefined
    const isNative = dice.chance(0.8)
    const isBounded = isSettled || this.#isCrowded || dice.chance(0.5)
    const most = isSettled ? 3 : dice.between(1, this.#isCrowded ? 10 : 500)
    // Its output is not seen while it is generated.
    const isHidden = dice.chance(0.15)
    const body = JSON.stringify({
      model: isSettled ? (model ?? "m") : dice.pick(models),
      stream: dice.chance(0.7),
      messages: [{ role: "user", content: "word ".repeat(this.#isCrowded ? 1 : dice.between(1, 60)) }],
      ...(isBounded ? (isNative ? { options: { num_predict: most } } : { max_tokens: most }) : {}),
      ...(isHidden ? (isNative ? { format: "json" } : { stop: "x" }) : {})
    })
    const headers = { ...head, "content-type": "application/json", "content-length": String(body.length) }
    this.#send(ask, "POST", isNative ? "/api/chat" : "/v1/chat/completions", headers, body, isSettled)
  }

  #send(
    ask: Ask,
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string | undefined,
    stays = false
  ): void {
    const { simulation } = this
    const { dice } = simulation
    const { process, running } = ask.gateway
    simulation.after(dice.between(0, 2), process, () => {
      if (ask.lost) return
      process.onRequest = (id) => (ask.id = id)
      const incoming = new Incoming(method, path, headers, "192.0.2.1")
      const response = new Outgoing(incoming, {
        onHead: (status) => {
          ask.status = status
          simulation.say(process.name, `answers ${short(ask.id)} with ${status}`)
        },
        onChunk: (text) => {
          if (ask.left) return true
          ask.text = `${ask.text}${text}`.slice(-2000)
          if (!dice.chance(0.1)) return true
          simulation.after(dice.between(0, 400), process, () => void response.emit("drain"))
          return false
        },
        onEnd: () => {
          ask.ended = true
          ask.overAt = Math.min(ask.overAt, simulation.now)
          simulation.say(process.name, `ends the answer of ${short(ask.id)}`)
          simulation.after(dice.between(0, 3), process, () => {
            response.emit("finish")
            response.emit("close")
          })
        }
      })
      incoming.complete = dice.chance(0.8)
      running?.handler(incoming, response)
      simulation.say(
        `client${ask.number}`,
        `asks ${process.name}: ${method} ${path} with ${ask.key?.id ?? "no key"}, ${short(ask.id)}`
      )
      const send = (): void => {
        if (ask.left) return
        ask.bodyAt = simulation.now
        incoming.complete = true
        if (body !== undefined) incoming.emit("data", Buffer.from(body))
        incoming.emit("end")
      }
      if (incoming.complete) send()
      else simulation.after(dice.between(1, 300), process, send)
      if (stays || !this.possible.has("clients leave") || !dice.chance(0.4)) return
      simulation.after(dice.between(0, dice.chance(0.5) ? 60 : 4000), process, () => {
        if (ask.ended || !this.isActive) return
        ask.left = true
        ask.overAt = simulation.now
        simulation.say(`client${ask.number}`, `leaves, ${short(ask.id)}`)
        response.destroyed = true
        incoming.emit("close")
        response.emit("close")
      })
    })
  }

  /** Everything works again, and no client comes any more. */
  heal(): void {
    const { model, postgres, redis } = this.stores
    this.isActive = false
    this.simulation.say("world", "everything works again")
    for (const store of [postgres, redis]) {
      store.set("well")
      store.losesReplies = 0
    }
    model.setUp(true)
    model.errs = 0
    model.hurries = true
    for (const { process } of this.gateways) {
      process.pausedUntil = Math.min(process.pausedUntil, this.simulation.now)
      process.struck = undefined
    }
  }
}
