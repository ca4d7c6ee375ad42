/**
 * A model server that holds one model and takes eight seconds to load another, in virtual time. Two replicas send it the requests
 * of a few tenants, through a `QueueStore`, or without a queue. The store reads the `TestClock`.
 *
 * The server works as Ollama does: it takes requests in the order they come. One for another model than the loaded one waits until
 * the running ones are done, with all that came after it.
 */
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { layerMemoryOf, QueueMemory } from "../../src/gates/queue/memory.ts"
import { Granted, QueueStore, type Ticket } from "../../src/gates/queue/QueueStore.ts"

export interface Tenant {
  readonly name: string
  readonly weight?: number
  /** asked for in turn, or at random */
  readonly models: ReadonlyArray<string>
  /** always so many requests, or one every so many ms on average */
  readonly load: { readonly always: number } | { readonly everyMs: number }
  /** when the first ones come; default: at the beginning */
  readonly fromMs?: number
}

export interface World {
  readonly tenants: ReadonlyArray<Tenant>
  readonly places: number
  readonly serviceMs: number
  readonly loadMs: number
  readonly durationMs: number
  readonly turnMaxMs: number
  /** tokens that a request is expected to use; it uses as many as `serviceMs`, which is the default */
  readonly expected?: number
}

/** `none`: the server's own order. `blind`: the queue without models. */
export type Queue =
  | { readonly kind: "none" }
  | { readonly kind: "blind" | "models"; readonly replicas: readonly [Store, Store] }
type Store = QueueStore["Service"]

/** Two replicas on one store. */
export const replicas = Effect.gen(function* () {
  const memory = new QueueMemory({ leaseS: 1e9 })
  const of = (name: string) => Effect.provide(QueueStore, layerMemoryOf(memory, name))
  return [yield* of("a"), yield* of("b")] as const
})

export interface Figures {
  readonly loads: number
  readonly served: number
  /** share of the time of all places in which an answer was made */
  readonly busy: number
  readonly servedOf: (tenant: string) => number
  /** from its arrival to the begin of its service, milliseconds */
  readonly waitOf: (tenants: ReadonlyArray<string>, share: number) => number
}

export const light: Tenant = { name: "light", models: ["a"], load: { everyMs: 60_000 } }
/** A flood with both models, a team with one, and somebody who asks now and then. */
export const teams: ReadonlyArray<Tenant> = [
  { name: "flood", models: ["a", "b"], load: { always: 40 } },
  { name: "team", models: ["b"], load: { always: 8 } },
  light
]
export const weighted: ReadonlyArray<Tenant> = [
  { name: "one", models: ["a"], load: { always: 40 } },
  { name: "three", models: ["b"], weight: 3, load: { always: 40 } }
]

export const makeWorld = (tenants: ReadonlyArray<Tenant>, more: Partial<World> = {}): World => ({
  tenants,
  places: 2,
  serviceMs: 1000,
  loadMs: 8000,
  turnMaxMs: 30_000,
  durationMs: 1_200_000,
  ...more
})

/**
 * The longest that a tenant may wait that asks for less than its share: what runs, a request of each other tenant, a turn with the
 * load before it, and the load of its own model.
 */
export const boundOf = ({ loadMs, serviceMs, tenants, turnMaxMs }: World): number =>
  tenants.length * serviceMs + loadMs + turnMaxMs + loadMs

interface Request {
  readonly id: string
  readonly tenant: Tenant
  readonly model: string
  readonly arrivedAt: number
  readonly store: Store | undefined
  waits: boolean
  /** how long the server loaded the model for it */
  loadMs: number
}

/** A generator of its own, so that a run can be repeated. */
const makeRandom = () => {
  let seed = 7
  return () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed / 2_147_483_648
  }
}

export const simulate = Effect.fnUntraced(function* (world: World, queue: Queue) {
  const { durationMs, loadMs, places, serviceMs, tenants, turnMaxMs } = world
  const bounds = {
    places,
    depth: 1e6,
    maxLoadedModels: 1,
    turnMaxMs
  }
  const random = makeRandom()
  const startedAt = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
  const events: Array<{ readonly at: number; readonly run: Effect.Effect<void, unknown> }> = []
  const plan = (at: number, run: Effect.Effect<void, unknown>) => {
    const index = events.findLastIndex((event) => event.at <= at)
    events.splice(index + 1, 0, { at, run })
  }
  const waits = new Map<string, Array<number>>(tenants.map(({ name }) => [name, []]))
  const live = new Map<string, Request>()
  let [now, count, loads] = [0, 0, 0]

  // The server
  const pending: Array<Request> = []
  let [loaded, loadedAt, running] = ["", 0, 0]
  const serve: Effect.Effect<void, unknown> = Effect.suspend(() => {
    while (running < places) {
      const next = pending[0]
      if (next === undefined || (next.model !== loaded && running > 0)) return Effect.void
      pending.shift()
      if (next.model !== loaded) {
        loads += 1
        loaded = next.model
        loadedAt = now + loadMs
      }
      running += 1
      next.loadMs = Math.max(0, loadedAt - now)
      waits.get(next.tenant.name)?.push(now + next.loadMs - next.arrivedAt)
      plan(now + next.loadMs + serviceMs, end(next))
    }
    return Effect.void
  })

  // The gateway
  /** What waits and got a place meanwhile. */
  const learn = Effect.gen(function* () {
    if (queue.kind === "none") return
    for (const store of queue.replicas) {
      const own = [...live.values()].filter((one) => one.store === store)
      const { messages } = yield* store.beat(
        own.filter((one) => !one.waits).map(({ id }) => id),
        own.filter((one) => one.waits).map(({ id }) => id),
        bounds
      )
      for (const { id, retryAfterS } of messages) {
        if (retryAfterS !== undefined) continue
        const one = live.get(id)
        if (one === undefined) continue
        one.waits = false
        pending.push(one)
      }
    }
    yield* serve
  })
  const arrive = (tenant: Tenant): Effect.Effect<void, unknown> =>
    Effect.gen(function* () {
      const id = `r${count++}`
      const model = tenant.models[Math.floor(random() * tenant.models.length)] ?? ""
      const store = queue.kind === "none" ? undefined : queue.replicas[count % 2]
      const request: Request = { id, tenant, model, arrivedAt: now, store, waits: true, loadMs: 0 }
      live.set(id, request)
      if (store !== undefined) {
        const ticket: Ticket = {
          id,
          tenant: tenant.name,
          key: tenant.name,
          model: queue.kind === "blind" ? "any" : model,
          weight: tenant.weight ?? 1,
          priority: "interactive",
          cost: world.expected ?? serviceMs
        }
        if (!((yield* store.enter(ticket, bounds)) instanceof Granted)) return yield* learn
      }
      request.waits = false
      pending.push(request)
      yield* serve
    })
  const end = (request: Request): Effect.Effect<void, unknown> =>
    Effect.gen(function* () {
      running -= 1
      live.delete(request.id)
      yield* request.store?.end(request.id, serviceMs, bounds, request.loadMs) ?? Effect.void
      yield* serve
      yield* learn
      if ("always" in request.tenant.load) yield* arrive(request.tenant)
    })

  for (const tenant of tenants) {
    const { load } = tenant
    if ("always" in load) {
      for (let i = 0; i < load.always; i++) plan((tenant.fromMs ?? 0) + i, arrive(tenant))
    } else {
      const pause = () => -load.everyMs * Math.log(1 - random())
      const again: Effect.Effect<void, unknown> = Effect.suspend(() => {
        plan(now + pause(), again)
        return arrive(tenant)
      })
      plan(pause(), again)
    }
  }
  const beat: Effect.Effect<void, unknown> = Effect.suspend(() => {
    plan(now + 1000, beat)
    return learn
  })
  plan(500, beat)
  for (let event = events.shift(); event !== undefined && event.at < durationMs; event = events.shift()) {
    now = event.at
    yield* TestClock.setTime(startedAt + now)
    yield* event.run
  }
  const sorted = (tenants: ReadonlyArray<string>) =>
    tenants.flatMap((tenant) => waits.get(tenant) ?? []).toSorted((one, two) => one - two)
  const served = [...waits.values()].reduce((sum, { length }) => sum + length, 0)
  const figures: Figures = {
    loads,
    served,
    busy: (served * serviceMs) / places / durationMs,
    servedOf: (tenant) => waits.get(tenant)?.length ?? 0,
    waitOf: (tenants, share) => {
      const all = sorted(tenants)
      return all[Math.min(all.length - 1, Math.floor(all.length * share))] ?? 0
    }
  }
  return figures
})
