/**
 * The world of one seed: gateways, stores, clients, administrators and faults. Each seed has its own weather: some faults never
 * happen in it, and a fifth of the seeds has none, so that nothing excuses a difference there.
 */
import { userAccountId } from "../../src/domain/EndUser.ts"
import { newKey, newTenant } from "../../src/domain/settings.ts"
import {
  type Handler,
  Incoming,
  namespace,
  Outgoing,
  queueMaxWaitMs,
  startGateway,
  type Stores
} from "./Gateway.ts"
import { ModelServer } from "./ModelServer.ts"
import { type KeyRow, Postgres, type TenantRow } from "./Postgres.ts"
import { Redis } from "./Redis.ts"
import { Process, Simulation, type Told } from "./Simulation.ts"
import { short, type Store } from "./Store.ts"

export interface Gateway {
  readonly process: Process
  readonly startedAt: number
  handler: Handler | undefined
  backlog: () => number
}

/** One request, as its client sees it. */
export interface Ask {
  readonly number: number
  readonly gateway: Gateway
  readonly key: KeyRow | undefined
  /** the account of its end user */
  readonly user: string | undefined
  readonly at: number
  /** when its body was whole */
  bodyAt: number
  id: string
  status: number | undefined
  text: string
  ended: boolean
  left: boolean
  /** when it ended or its client left */
  overAt: number
  /** the gateway died before the end */
  lost: boolean
}

const noon = Date.parse("2026-06-17T12:00:00Z")
/** Half a minute before a day and a month end. */
const lateInMonth = Date.parse("2026-06-30T23:59:30Z")

const faults = [
  "kill",
  "pause",
  "slow",
  "cut",
  "freeze",
  "lose redis",
  "crash postgres",
  "lose replies",
  "model down",
  "model errs",
  "clients leave"
] as const
type Fault = (typeof faults)[number]
/** Faults after which the stores still have what they were told, and are told it in time. */
export const harmless: ReadonlySet<Fault> = new Set(["model down", "model errs", "clients leave"])

export class World {
  readonly simulation: Simulation
  readonly stores: Stores
  readonly gateways: Array<Gateway> = []
  readonly asks: Array<Ask> = []
  readonly possible: ReadonlySet<Fault>
  /** the largest budgets that an account or a tenant ever had, by owner and period */
  readonly most = new Map<string, number>()
  /** when something was last wrong with a process */
  troubledAt = Number.NEGATIVE_INFINITY
  crashedAt = Number.NEGATIVE_INFINITY
  killedAt = Number.NEGATIVE_INFINITY
  /** the accounts of end users, by id */
  readonly users = new Map<string, { readonly account: string; readonly name: string }>()
  /** what gateways logged as an error */
  readonly errors: Array<string> = []
  isActive = true
  #processes = 0
  #keys = 0

  /** `without`: faults that do not happen. */
  constructor(seed: number, without: ReadonlySet<string> = new Set(), tell?: (told: Told) => void) {
    const simulation = new Simulation(seed, seed % 4 === 0 ? lateInMonth : noon, tell)
    const { dice } = simulation
    this.simulation = simulation
    // Most invariants are strict where stores and processes work, so half of the worlds are such.
    const [isQuiet, isHarmless, isMixed] = [dice.chance(0.2), dice.chance(0.4), dice.chance(0.6)]
    const worst = dice.pick(faults.filter((fault) => !harmless.has(fault)))
    const happens = (fault: Fault): boolean =>
      harmless.has(fault) ? dice.chance(0.5) : !isHarmless && (isMixed ? dice.chance(0.4) : fault === worst)
    this.possible = new Set(isQuiet ? [] : faults.filter((fault) => happens(fault) && !without.has(fault)))
    // A short lease ends often, and a long one hardly ever.
    const leaseS = dice.pick([2, 6]) ?? 6
    const places = dice.chance(0.3) ? undefined : dice.between(1, 4)
    this.stores = {
      postgres: new Postgres(simulation),
      redis: new Redis(simulation, leaseS, places === undefined ? 0 : queueMaxWaitMs),
      model: new ModelServer(simulation),
      leaseS,
      places
    }
    for (let i = 0; i < 2; i += 1) {
      const tenant = this.#addTenant(`tenant${i}`)
      for (let n = dice.between(1, 2); n > 0; n -= 1) this.addKey(tenant)
    }
    for (let n = dice.pick([2, 2, 3, 5]) ?? 2; n > 0; n -= 1) this.start()
    // Counters are compared while an account rests, and limits are reached while it does not.
    this.#every(10, dice.pick([100, 250, 1000]) ?? 250, () => this.ask())
    this.#every(200, 2000, () => this.#administer())
    if (this.possible.size > 0) this.#every(100, 3000, () => this.#fault())
    simulation.say(
      "world",
      `${this.gateways.length} gateways, ${places ?? "any number of"} places, faults: ${[...this.possible].join(", ") || "none"}`
    )
  }

  get alive(): ReadonlyArray<Gateway> {
    return this.gateways.filter(({ process }) => !process.isDead)
  }

  /** When a store or a process last did not work as it should. */
  get lastTrouble(): number {
    return Math.max(this.redisTrouble, this.#troubleOf(this.stores.postgres))
  }

  /** The same without Postgres. */
  get redisTrouble(): number {
    const pauses = this.alive.map(({ process }) => process.pausedUntil)
    return Math.max(this.troubledAt, this.#troubleOf(this.stores.redis), ...pauses)
  }

  #troubleOf({ losesReplies, state, troubledAt }: Store): number {
    return state === "well" && losesReplies === 0 ? troubledAt : this.simulation.now
  }

  #every(least: number, most: number, work: () => void): void {
    const { simulation } = this
    const next = (): void => {
      if (!this.isActive) return
      work()
      simulation.after(simulation.dice.between(least, most), undefined, next)
    }
    simulation.after(simulation.dice.between(least, most), undefined, next)
  }

  #addTenant(name: string): TenantRow {
    const { dice } = this.simulation
    const settings = {
      ...newTenant,
      rpm: dice.between(30, 500),
      tpm: dice.chance(0.2) ? dice.between(200, 2000) : 1_000_000,
      concurrent: dice.between(1, 6),
      allowAllModels: true,
      budgetDaily: dice.chance(0.2) ? dice.between(300, 6000) : null
    }
    const tenant = { id: `tenant-${name}`, name, settings }
    this.stores.postgres.tenants.set(tenant.id, tenant)
    this.#noteBudgets(tenant.id, settings)
    return tenant
  }

  /** `account`: the account of the key that it replaces. */
  addKey(tenant: TenantRow, account?: string): KeyRow {
    const { dice } = this.simulation
    this.#keys += 1
    const prefix = `${namespace}key${String(this.#keys).padStart(6, "0")}`
    const id = `key-${this.#keys}`
    const settings = {
      ...newKey,
      budgetDaily: dice.chance(0.3) ? dice.between(100, 5000) : null,
      budgetTotal: dice.chance(0.2) ? dice.between(500, 8000) : null,
      ...(dice.chance(0.3)
        ? {
            endUserHeader: "x-user",
            eachUserConcurrent: dice.between(1, 3),
            eachUserDaily: dice.chance(0.5) ? dice.between(100, 2000) : null
          }
        : {})
    }
    const key = {
      id,
      prefix,
      secret: prefix.padEnd(44, "a"),
      tenantId: tenant.id,
      account: account ?? id,
      settings
    }
    this.stores.postgres.keys.set(prefix, key)
    this.#noteBudgets(key.account, settings)
    return key
  }

  #noteBudgets(
    owner: string,
    settings: {
      readonly budgetDaily: number | null
      readonly budgetTotal: number | null
      readonly eachUserDaily?: number | null
    }
  ): void {
    for (const [period, budget] of [
      ["day", settings.budgetDaily],
      ["total", settings.budgetTotal],
      ["user", settings.eachUserDaily ?? null]
    ] as const) {
      const name = `${owner} ${period}`
      // No budget is no bound, also when it is set later.
      this.most.set(name, Math.max(this.most.get(name) ?? 0, budget ?? Number.POSITIVE_INFINITY))
    }
  }

  start(): Gateway {
    const { simulation } = this
    this.#processes += 1
    const process = new Process(simulation, `gateway${this.#processes}`, simulation.dice.between(-20, 20))
    const gateway: Gateway = { process, startedAt: simulation.now, handler: undefined, backlog: () => 0 }
    process.onLog = (level, text) => {
      simulation.say(process.name, `logs ${level}: ${text}`)
      // A row that cannot be decoded is a defect, of the gateway or of the twin.
      if (level === "Error" || level === "Fatal" || text.includes("SchemaError"))
        this.errors.push(`${process.name}: ${text}`)
    }
    this.gateways.push(gateway)
    startGateway(process, this.stores, ({ backlog, handler }) => {
      gateway.handler = handler
      gateway.backlog = backlog
      simulation.say(process.name, "is ready")
    })
    return gateway
  }

  kill(gateway: Gateway): void {
    const { simulation, stores } = this
    gateway.process.isDead = true
    this.troubledAt = simulation.now
    this.killedAt = simulation.now
    simulation.say(gateway.process.name, "dies")
    for (const ask of this.asks) if (ask.gateway === gateway && !ask.ended && !ask.left) ask.lost = true
    for (const [id, call] of stores.model.running)
      if (call.of === gateway.process) stores.model.running.delete(id)
    simulation.after(simulation.dice.between(100, 3000), undefined, () => void this.start())
  }

  #pause({ process }: Gateway, ms: number): void {
    if (!this.isActive) return
    process.pausedUntil = this.simulation.now + ms
    this.troubledAt = process.pausedUntil
    this.simulation.say(process.name, `is paused for ${ms} ms`)
  }

  #fault(): void {
    const { dice, now } = this.simulation
    const { model, postgres, redis } = this.stores
    const fault = dice.pick([...this.possible])
    const store = dice.chance(0.5) ? postgres : redis
    const heal = (ms: number) => this.simulation.after(ms, undefined, () => store.set("well"))
    const gateway = dice.pick(this.alive)
    /** Now, or when a store has done what the gateway asked for, before the gateway knows. */
    const strike = (what: () => void) => {
      if (gateway === undefined || dice.chance(0.3)) return what()
      gateway.process.struck = { in: dice.between(1, 4), what }
    }
    switch (fault) {
      case "kill":
        if (gateway === undefined || dice.chance(0.5)) return
        return strike(() => {
          if (this.alive.length > 1 && !gateway.process.isDead) this.kill(gateway)
        })
      case "pause":
        if (gateway === undefined) return
        // Sometimes longer than its leases live.
        return strike(() =>
          this.#pause(gateway, dice.between(50, dice.chance(0.4) ? 2000 * this.stores.leaseS : 1500))
        )
      case "slow":
        store.set("slow")
        return void heal(dice.between(500, 5000))
      case "cut":
        store.set("cut")
        return void heal(dice.between(100, dice.chance(0.2) ? 12_000 : 3000))
      case "freeze":
        store.set("frozen")
        return void heal(dice.between(100, dice.chance(0.2) ? 12_000 : 3000))
      case "lose redis":
        if (dice.chance(0.3)) redis.lose()
        return
      case "crash postgres":
        if (!dice.chance(0.3)) return
        this.crashedAt = now
        return postgres.crash()
      case "lose replies":
        store.losesReplies = 0.2
        return void this.simulation.after(dice.between(100, 2000), undefined, () => {
          store.losesReplies = 0
          store.troubledAt = this.simulation.now
        })
      case "model down":
        model.isUp = false
        this.simulation.say("model", "is down")
        return void this.simulation.after(dice.between(500, 6000), undefined, () => {
          model.isUp = true
          this.simulation.say("model", "is up")
        })
      case "model errs":
        model.errs = 0.5
        return void this.simulation.after(dice.between(1000, 9000), undefined, () => void (model.errs = 0))
      case "clients leave":
      case undefined:
        return undefined
    }
  }

  #administer(): void {
    const { dice } = this.simulation
    const { postgres } = this.stores
    const usable = [...postgres.keys.values()].filter(({ prefix }) => !postgres.revoked.has(prefix))
    const key = dice.pick(usable)
    const tenant = postgres.tenants.get(key?.tenantId ?? "")
    if (key === undefined || tenant === undefined) return
    const says = (what: string) => this.simulation.say("admin", what)
    switch (dice.below(6)) {
      case 0: {
        const settings = { ...tenant.settings, rpm: dice.between(30, 500), concurrent: dice.between(1, 6) }
        postgres.changeTenant({ ...tenant, settings })
        return says(
          `changes the limits of ${tenant.name}: ${settings.rpm} requests a minute, ${settings.concurrent} at a time`
        )
      }
      case 1: {
        const budgetDaily = dice.chance(0.8) ? dice.between(100, 4000) : null
        const eachUserDaily =
          key.settings.endUserHeader !== null && dice.chance(0.5) ? dice.between(100, 2000) : null
        const settings = { ...key.settings, budgetDaily, eachUserDaily }
        for (const other of postgres.keys.values())
          if (other.account === key.account) postgres.keys.set(other.prefix, { ...other, settings })
        this.#noteBudgets(key.account, settings)
        return says(`changes the daily budget of ${key.id} to ${budgetDaily ?? "none"}`)
      }
      case 2: {
        const next = this.addKey(tenant, key.account)
        postgres.keys.set(next.prefix, { ...next, settings: key.settings })
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
      default:
        // The last key goes on, so that there is something to see.
        if (usable.length < 2 || dice.chance(0.6)) return undefined
        postgres.revoke(key.prefix)
        return says(`revokes ${key.id}`)
    }
  }

  /** A client asks a gateway, with this key. `settled`: the gateway works, and the client stays. */
  ask({
    key: given,
    settled,
    user: named
  }: { readonly key?: KeyRow; readonly settled?: Gateway; readonly user?: string } = {}): Ask | undefined {
    const { simulation, stores } = this
    const { dice } = simulation
    const gateway = settled ?? dice.pick(this.alive)
    const handler = gateway?.handler
    if (gateway === undefined || handler === undefined) return undefined
    const key = given ?? (dice.chance(0.05) ? undefined : dice.pick([...stores.postgres.keys.values()]))
    const name = named ?? dice.pick(["ann", "bob", ""]) ?? ""
    const user =
      key === undefined || key.settings.endUserHeader === null ? undefined : userAccountId(key.account, name)
    if (key !== undefined && user !== undefined) this.users.set(user, { account: key.account, name })
    const ask: Ask = {
      number: this.asks.length + 1,
      gateway,
      key,
      user,
      at: simulation.now,
      bodyAt: simulation.now,
      id: "",
      status: undefined,
      text: "",
      ended: false,
      left: false,
      overAt: Number.POSITIVE_INFINITY,
      lost: false
    }
    this.asks.push(ask)
    const lists = given === undefined && dice.chance(0.05)
    const [method, path] = lists
      ? ["GET", "/api/tags"]
      : ["POST", dice.chance(0.8) ? "/api/chat" : "/v1/chat/completions"]
    const fits = { max_tokens: settled === undefined ? dice.between(1, 500) : 3 }
    const body = JSON.stringify({
      model: settled === undefined ? dice.pick(["m", "n"]) : "m",
      stream: dice.chance(0.7),
      messages: [{ role: "user", content: "word ".repeat(dice.between(1, 60)) }],
      ...(settled !== undefined || dice.chance(0.5)
        ? path === "/api/chat"
          ? { options: { num_predict: fits.max_tokens } }
          : fits
        : {}),
      // Its output is not seen while it is generated.
      ...(dice.chance(0.15)
        ? { [path === "/api/chat" ? "format" : "stop"]: path === "/api/chat" ? "json" : "x" }
        : {})
    })
    const secret = key?.secret ?? (dice.chance(0.5) ? `${namespace}nobody`.padEnd(44, "z") : "?")
    const headers = {
      host: "gateway",
      authorization: `Bearer ${secret}`,
      ...(user === undefined || name === "" ? {} : { "x-user": name }),
      ...(lists ? {} : { "content-type": "application/json", "content-length": String(body.length) })
    }
    const { process } = gateway
    const who = `client${ask.number}`
    simulation.after(dice.between(0, 2), process, () => {
      if (ask.lost) return
      process.onRequest = (id) => (ask.id = id)
      const incoming = new Incoming(method ?? "", path ?? "", headers, "192.0.2.1")
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
      handler(incoming, response)
      simulation.say(
        who,
        `asks ${process.name}: ${method} ${path} with ${key?.id ?? "no key"}, ${short(ask.id)}`
      )
      const send = (): void => {
        if (ask.left) return
        ask.bodyAt = simulation.now
        incoming.complete = true
        if (!lists) incoming.emit("data", Buffer.from(body))
        incoming.emit("end")
      }
      if (incoming.complete) send()
      else simulation.after(dice.between(1, 300), process, send)
      if (settled !== undefined || !this.possible.has("clients leave") || !dice.chance(0.4)) return
      simulation.after(dice.between(0, dice.chance(0.5) ? 60 : 4000), process, () => {
        if (ask.ended || !this.isActive) return
        ask.left = true
        ask.overAt = simulation.now
        simulation.say(who, `leaves, ${short(ask.id)}`)
        response.destroyed = true
        incoming.emit("close")
        response.emit("close")
      })
    })
    return ask
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
    model.isUp = true
    model.errs = 0
    model.hurries = true
    for (const { process } of this.gateways) {
      process.pausedUntil = Math.min(process.pausedUntil, this.simulation.now)
      process.struck = undefined
    }
  }
}
