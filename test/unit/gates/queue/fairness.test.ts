/** What the rule buys: simulations in virtual time, with the scheduler itself. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { FairScheduler } from "../../../../src/gates/queue/FairScheduler.ts"
import { type Bounds, Full, Granted, type Ticket } from "../../../../src/gates/queue/QueueStore.ts"
import { testWith } from "../../../support/testWith.ts"
import { makeWorld, replicas, simulate, type Tenant } from "../../../support/turns.ts"

const nine = Array.from({ length: 9 }, (_, i): Tenant => ({
  name: `light${i}`,
  models: ["m"],
  load: { everyMs: 1000 }
}))
const flood: Tenant = { name: "flood", models: ["m"], load: { always: 50 } }
const ofOneModel = { serviceMs: 100, loadMs: 0, durationMs: 120_000 }

const test = testWith(it.effect)

describe("fairness of the line", () => {
  for (const [what, more] of [
    ["one tenant always has 50 in line", {}],
    ["requests use far less than they may at most", { expected: 20_000 }]
  ] as const) {
    test(`when ${what}, then nine others wait 2.5 service times at most at the 95th percentile`, function* () {
      const world = makeWorld([flood, ...nine], { ...ofOneModel, ...more })
      const run = yield* simulate(world, { kind: "models", replicas: yield* replicas })
      const names = nine.map(({ name }) => name)
      assert.isAtMost(run.waitOf(names, 0.95), 250)
      assert.isAtLeast(run.busy, 0.97)
    })
  }

  test("when a tenant was idle for half of the time, then it has saved up nothing: it gets its half of the rest", function* () {
    const late: Tenant = { ...flood, name: "late", fromMs: 60_000 }
    const world = makeWorld([flood, late], ofOneModel)
    const run = yield* simulate(world, { kind: "models", replicas: yield* replicas })
    assert.approximately(run.servedOf("late") / run.served, 0.25, 0.02)
  })

  it("when interactive requests always wait, then batch requests get a place at least once in ten minutes", () => {
    const [places, serviceMs] = [1, 20_000]
    const scheduler = new FairScheduler({ leaseMs: 1e12, graceMs: 0, batchEveryMs: 600_000 }, 0, true)
    const bounds = { places, depth: 1000 }
    const add = (now: number, id: string, priority: Ticket["priority"]) =>
      scheduler.enter(
        now,
        "a",
        { id, tenant: priority, key: "k", model: "m", weight: 1, priority, cost: 10 },
        bounds
      )
    for (let i = 0; i < 20; i++) add(0, `i${i}`, "interactive")
    for (let i = 0; i < 20; i++) add(0, `b${i}`, "batch")
    let running = "i0"
    const batchAt = [0]
    for (let now = serviceMs; now <= 7_200_000; now += serviceMs) {
      const [grant] = scheduler.end(now, running, 10, bounds).messages
      running = grant?.id ?? ""
      if (running.startsWith("b")) batchAt.push(now)
      else add(now, `i${now}`, "interactive")
    }
    const gaps = batchAt.slice(1).map((at, i) => at - (batchAt[i] ?? 0))
    assert.isAtLeast(gaps.length, 11)
    assert.isAtMost(Math.max(...gaps), 600_000 + serviceMs)
  })
})

/** Tokens that a request is expected to use, at most; it may use twice as many, or none. */
const most = 50

const step = fc.record({
  /** which of the running requests ends */
  which: fc.nat(7),
  used: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 2 * most })),
  /** of the next request of the same tenant */
  cost: fc.integer({ min: 1, max: most }),
  /** another replica sends a request and dies */
  death: fc.integer({ min: 0, max: 20 }).map((figure) => figure === 0)
})

/**
 * Plays the steps with tenants that always have requests in the queue. Returns how far apart the shares of two tenants
 * were at most, in units of what start-time fair queueing on several servers allows.
 */
const spread = (
  weights: ReadonlyArray<number>,
  places: number,
  steps: ReadonlyArray<typeof step extends fc.Arbitrary<infer A> ? A : never>
) => {
  const leaseMs = 1000
  const scheduler = new FairScheduler({ leaseMs, graceMs: 0, batchEveryMs: 1e12 }, 0, true)
  const bounds = { places, depth: 1e6 }
  const tickets = new Map<string, Ticket>()
  const running: Array<string> = []
  const charged = weights.map(() => 0)
  let [count, now] = [0, 0]
  const charge = (tenant: string, tokens: number) => {
    const at = Number(tenant)
    if (Number.isInteger(at)) charged[at] = (charged[at] ?? 0) + tokens
  }
  const go = (id: string) => {
    const ticket = tickets.get(id)
    if (ticket === undefined) return
    running.push(id)
    charge(ticket.tenant, ticket.cost)
  }
  const add = (replica: string, tenant: string, weight: number, cost: number) => {
    const id = `r${count++}`
    const ticket: Ticket = { id, tenant, key: tenant, model: "m", weight, priority: "interactive", cost }
    if (replica === "alive") tickets.set(id, ticket)
    const { answer, messages } = scheduler.enter(now, replica, ticket, bounds)
    if (answer instanceof Granted) go(id)
    for (const grant of messages) go(grant.id)
  }
  for (const [tenant, weight] of weights.entries()) {
    for (let i = 0; i < places + 2; i++) add("alive", String(tenant), weight, most)
  }
  let worst = 0
  for (const { cost, death, used, which } of steps) {
    now += leaseMs / 4
    for (const grant of scheduler.beat(now, "alive", [...tickets.keys()], [], bounds).messages) go(grant.id)
    if (death) add(`dead${count}`, "doomed", 1, cost)
    const id = running[which % Math.max(1, running.length)]
    const ticket = tickets.get(id ?? "")
    if (id === undefined || ticket === undefined) continue
    running.splice(running.indexOf(id), 1)
    tickets.delete(id)
    if (used > 0) charge(ticket.tenant, used - ticket.cost)
    for (const grant of scheduler.end(now, id, used, bounds).messages) go(grant.id)
    add("alive", ticket.tenant, ticket.weight, cost)
    for (const [i, one] of weights.entries()) {
      for (const [j, two] of weights.entries()) {
        const apart = Math.abs((charged[i] ?? 0) / one - (charged[j] ?? 0) / two)
        worst = Math.max(worst, apart / ((places + 1) * 2 * most * (1 / one + 1 / two)))
      }
    }
  }
  return worst
}

describe("no tenant starves", () => {
  it("when tenants of any weight always wait, then their shares differ by a few requests at most", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(0.1, 0.5, 1, 3, 10), { minLength: 2, maxLength: 5 }),
        fc.integer({ min: 1, max: 4 }),
        fc.array(step, { minLength: 100, maxLength: 400, size: "max" }),
        (weights, places, steps) => spread(weights, places, steps) <= 1
      ),
      { numRuns: 300 }
    )
  })
})

/** With one model, and where all models fit, the queue decides as if it knew of no models, whatever the bounds of a turn are. */
const indifferent: ReadonlyArray<{ readonly model: (n: number) => string; readonly more: Partial<Bounds> }> =
  [
    { model: () => "m", more: {} },
    { model: () => "m", more: { maxLoadedModels: 1, turnMaxMs: 1 } },
    { model: (n) => `m${n % 3}`, more: { maxLoadedModels: 3 } }
  ]

describe("places", () => {
  const step = fc.record({
    does: fc.constantFrom("enter", "enter", "end", "leave"),
    which: fc.nat(20),
    tenant: fc.constantFrom("one", "two", "three"),
    priority: fc.constantFrom("interactive", "batch"),
    used: fc.integer({ min: 0, max: 100 })
  })

  it("when requests come, go and end in any order, then no more run than may, nobody waits while a place is free, nothing is left, and models that fit change nothing", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 0, max: 5 }),
        fc.array(step, { maxLength: 100, size: "max" }),
        (places, depth, steps) => {
          const worlds = indifferent.map(({ model, more }) => ({
            model,
            bounds: { places, depth, ...more },
            scheduler: new FairScheduler({ leaseMs: 1e12, graceMs: 0, batchEveryMs: 5 }, 0, true)
          }))
          const known = new Set<string>()
          /** Asks all schedulers. They tell the same. */
          const ask = (
            put: (world: (typeof worlds)[number]) => ReturnType<FairScheduler["enter" | "end" | "leave"]>
          ) => {
            const all = worlds.map(put).map(({ answer, messages }) => ({
              isIn: !(answer instanceof Full),
              told: messages.map(({ id, retryAfterS }) => [id, retryAfterS])
            }))
            for (const told of all) assert.deepStrictEqual(told, all[0])
            for (const [id, retryAfterS] of all[0]?.told ?? [])
              if (retryAfterS !== undefined) known.delete(String(id))
            return all[0]?.isIn
          }
          const end = (now: number, id: string, used: number) =>
            ask(({ bounds, scheduler }) => scheduler.end(now, id, used, bounds))
          for (const [now, { does, priority, tenant, used, which }] of steps.entries()) {
            const id = [...known][which]
            if (does === "enter") {
              const ticket = { id: `r${now}`, tenant, key: tenant, weight: 1, priority, cost: 10 }
              const isIn = ask(({ bounds, model, scheduler }) =>
                scheduler.enter(now, "a", { ...ticket, model: model(now) }, bounds)
              )
              if (isIn) known.add(ticket.id)
            } else if (id !== undefined) {
              known.delete(id)
              if (does === "end") end(now, id, used)
              else ask(({ bounds, scheduler }) => scheduler.leave(now, id, bounds))
            }
            for (const { running, waiting } of worlds.map(({ scheduler }) => scheduler)) {
              assert.isAtMost(running, places)
              assert.isAtMost(waiting, depth)
              assert.isTrue(waiting === 0 || running === places, "nobody waits while a place is free")
              assert.strictEqual(running + waiting, known.size)
            }
          }
          for (const id of known) end(steps.length, id, 1)
          for (const { scheduler } of worlds)
            assert.deepStrictEqual([scheduler.running, scheduler.waiting], [0, 0])
        }
      )
    )
  })
})
