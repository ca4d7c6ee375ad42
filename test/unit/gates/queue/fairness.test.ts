/** What the rule buys: simulations in virtual time, with the scheduler itself. */
import { assert, describe, it } from "@effect/vitest"
import { FairScheduler } from "../../../../src/gates/queue/FairScheduler.ts"
import { Granted, type Ticket } from "../../../../src/gates/queue/QueueStore.ts"

interface Flow {
  readonly tenant: string
  readonly weight?: number
  /** always so many in line, or one every so many ms on average */
  readonly load: { readonly closed: number } | { readonly everyMs: number }
}

interface Simulation {
  readonly places: number
  readonly serviceMs: number
  readonly durationMs: number
  readonly flows: ReadonlyArray<Flow>
}

/** A generator of its own, so that a run can be repeated. */
const makeRandom = () => {
  let seed = 7
  return () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed / 2_147_483_648
  }
}

const simulate = ({ durationMs, flows, places, serviceMs }: Simulation) => {
  const scheduler = new FairScheduler({ leaseMs: 1e12, graceMs: 0, batchEveryMs: 1e12 }, 0, true)
  const bounds = { places, depth: 1e6 }
  const random = makeRandom()
  const events: Array<{ readonly at: number; readonly run: (now: number) => void }> = []
  const plan = (at: number, run: (now: number) => void) => {
    let low = 0
    let high = events.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((events[middle]?.at ?? 0) > at) low = middle + 1
      else high = middle
    }
    events.splice(low, 0, { at, run })
  }
  const waits = new Map<string, Array<number>>(flows.map(({ tenant }) => [tenant, []]))
  const pending = new Map<string, { readonly flow: Flow; readonly since: number }>()
  let count = 0
  let busyMs = 0
  const begin = (now: number, id: string) => {
    const request = pending.get(id)
    if (request === undefined) return
    waits.get(request.flow.tenant)?.push(now - request.since)
    busyMs += serviceMs
    plan(now + serviceMs, (then) => {
      for (const grant of scheduler.end(then, id, serviceMs, bounds)) begin(then, grant.id)
      if ("closed" in request.flow.load) arrive(then, request.flow)
    })
  }
  const arrive = (now: number, flow: Flow) => {
    const id = `r${count++}`
    const ticket: Ticket = {
      id,
      tenant: flow.tenant,
      key: flow.tenant,
      weight: flow.weight ?? 1,
      priority: "interactive",
      cost: serviceMs
    }
    pending.set(id, { flow, since: now })
    const { answer, grants } = scheduler.enter(now, "a", ticket, bounds)
    if (answer instanceof Granted) begin(now, id)
    for (const grant of grants) begin(now, grant.id)
  }
  for (const flow of flows) {
    const { load } = flow
    if ("closed" in load) {
      for (let i = 0; i < load.closed; i++) plan(i, (now) => arrive(now, flow))
    } else {
      const again = (now: number) => {
        arrive(now, flow)
        plan(now - load.everyMs * Math.log(1 - random()), again)
      }
      plan(-load.everyMs * Math.log(1 - random()), again)
    }
  }
  for (let event = events.pop(); event !== undefined && event.at < durationMs; event = events.pop()) {
    event.run(event.at)
  }
  const sorted = (tenants: ReadonlyArray<string>) =>
    tenants.flatMap((tenant) => waits.get(tenant) ?? []).sort((a, b) => a - b)
  return {
    served: (tenant: string) => waits.get(tenant)?.length ?? 0,
    p95: (tenants: ReadonlyArray<string>) => {
      const all = sorted(tenants)
      return all[Math.floor(all.length * 0.95)] ?? 0
    },
    throughput: busyMs / (places * durationMs)
  }
}

const nine = Array.from({ length: 9 }, (_, i) => `light${i}`)
const flood: Flow = { tenant: "flood", load: { closed: 50 } }

describe("fairness of the line", () => {
  it("when one tenant always has 50 in line, then nine others wait 2.5 service times at most at the 95th percentile", () => {
    const run = simulate({
      places: 2,
      serviceMs: 100,
      durationMs: 600_000,
      flows: [flood, ...nine.map((tenant) => ({ tenant, load: { everyMs: 1000 } }))]
    })
    assert.isAtMost(run.p95(nine), 250)
    assert.isAtLeast(run.throughput, 0.97)
  })

  it("when two floods have weights 1 and 3, then they are served 1 to 3 within a tenth", () => {
    const run = simulate({
      places: 2,
      serviceMs: 100,
      durationMs: 300_000,
      flows: [
        { tenant: "one", load: { closed: 50 } },
        { tenant: "three", weight: 3, load: { closed: 50 } }
      ]
    })
    const ratio = run.served("three") / run.served("one")
    assert.isAtLeast(ratio, 2.7)
    assert.isAtMost(ratio, 3.3)
  })

  it("when a tenant was idle for long, then it has saved up nothing", () => {
    const run = simulate({
      places: 1,
      serviceMs: 100,
      durationMs: 100_000,
      flows: [flood, { tenant: "late", load: { everyMs: 99_000 } }]
    })
    assert.isAtMost(run.p95(["late"]), 200)
  })
})
