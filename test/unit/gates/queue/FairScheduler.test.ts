/** Rules of the queue that show best without a store. */
import { assert, describe, it } from "@effect/vitest"
import { FairScheduler } from "../../../../src/gates/queue/FairScheduler.ts"
import {
  allReportedMs,
  Granted,
  type Message,
  type Ticket,
  Waiting
} from "../../../../src/gates/queue/QueueStore.ts"

const options = { leaseMs: 30_000, graceMs: 2500, batchEveryMs: 600_000 }
const ticket = (id: string, more: Partial<Ticket> = {}): Ticket => ({
  id,
  tenant: "t",
  key: "k",
  model: "m",
  weight: 1,
  priority: "interactive",
  cost: 100,
  ...more
})

describe("batch requests", () => {
  it("when one came first and eight interactive ones after it, then it gets what they leave", () => {
    const queue = new FairScheduler(options, 0, true)
    const bounds = { places: 2, depth: 64 }
    for (const id of ["r1", "r2"]) queue.enter(0, "a", ticket(id), bounds)
    queue.enter(1, "a", ticket("batch", { priority: "batch" }), bounds)
    for (let i = 1; i <= 8; i++) queue.enter(1 + i, "a", ticket(`i${i}`), bounds)
    const running = ["r1", "r2"]
    const order: Array<string> = []
    for (let now = 100; running.length > 0; now += 100) {
      const { messages } = queue.end(now, running.shift() ?? "", 100, bounds)
      for (const { id } of messages) {
        running.push(id)
        order.push(id)
      }
    }
    assert.deepStrictEqual(order, ["i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8", "batch"])
  })
})

describe("a model that nobody waited for to leave", () => {
  /** When each of the requests ends, and which models were loaded. Each takes `serviceMs`, after the load of its model. */
  const serve = (arrivals: ReadonlyArray<readonly [at: number, model: string]>, loadMs: number) => {
    const [serviceMs, bounds] = [600, { places: 16, depth: 64, maxLoadedModels: 1, turnMaxMs: 10_000 }]
    const queue = new FairScheduler({ ...options, leaseMs: 1e12 }, 0, true)
    const loads: Array<string> = []
    let [loaded, loadedAt, until] = ["", 0, 0]
    const events: Array<readonly [at: number, run: (now: number) => ReadonlyArray<Message>]> = []
    const tickets = new Map<string, Ticket>()
    const go = (now: number, id: string) => {
      const model = tickets.get(id)?.model ?? ""
      if (model !== loaded) {
        loads.push(model)
        loaded = model
        loadedAt = now + loadMs
      }
      const endsAt = Math.max(now, loadedAt) + serviceMs
      const waited = Math.max(0, loadedAt - now)
      events.push([endsAt, (at) => queue.end(at, id, 200, bounds, waited).messages])
      until = Math.max(until, endsAt)
    }
    for (const [i, [at, model]] of arrivals.entries())
      events.push([
        at,
        (now) => {
          const one = ticket(`${model}${i}`, { model, tenant: `t${i}`, key: `k${i}` })
          tickets.set(one.id, one)
          const { answer, messages } = queue.enter(now, "r", one, bounds)
          if (answer instanceof Granted) go(now, one.id)
          return messages
        }
      ])
    for (let at = 0; at < 120_000; at += 100)
      events.push([at, (now) => queue.beat(now, "r", [...tickets.keys()], [], bounds).messages])
    while (events.length > 0) {
      events.sort(([one], [two]) => one - two)
      const [now, run] = events.shift() ?? [0, () => []]
      for (const { id } of run(now)) go(now, id)
    }
    return { loads, until }
  }

  it("when pairs of requests for two models alternate, then it is loaded once, and the other after it: as the server's own grouping does", () => {
    const pairs = Array.from(
      { length: 16 },
      (_, i) => [60_000 + i * 50, i % 2 === 0 ? "one" : "two"] as const
    )
    const { loads, until } = serve([[0, "two"], [10_000, "one"], ...pairs], 2100)
    assert.deepStrictEqual(loads, ["two", "one", "two"])
    // Arrivals, an answer, a moment, the load, an answer.
    assert.isAtMost(until - 60_000, 700 + 600 + 363 + 2100 + 600)
  })

  it("when its requests go on, then the other waits for a turn, and not longer", () => {
    const many = Array.from({ length: 100 }, (_, i) => [60_000 + i * 300, "one"] as const)
    const { loads, until } = serve([[0, "one"], ...many, [60_100, "two"]], 2100)
    assert.deepStrictEqual(loads, ["one", "two", "one"])
    assert.isAtLeast(until, 60_100 + 10_000)
  })
})

describe("a loss", () => {
  const bounds = { places: 2, depth: 8 }

  it("when all replicas that were known have named their requests, then places are given before the time is over", () => {
    const queue = new FairScheduler(options, 10_000, false)
    const peers = ["a", "b"]
    assert.deepStrictEqual(queue.beat(10_000, "a", ["r1"], [], bounds, undefined, peers).answer.unknown, [
      "r1"
    ])
    queue.restore(10_000, "a", [{ ticket: ticket("r1"), order: undefined }], bounds)
    assert.strictEqual(queue.beat(10_005, "a", ["r1"], [], bounds, undefined, peers).answer.changesInMs, 2495)
    assert.instanceOf(queue.enter(10_010, "a", ticket("r2"), bounds).answer, Waiting)
    assert.strictEqual(
      queue.beat(10_700, "b", [], [], bounds, undefined, peers).answer.changesInMs,
      0,
      "once more"
    )
    const opens = queue.beat(10_705, "b", [], [], bounds, undefined, peers).answer.changesInMs
    assert.strictEqual(opens, allReportedMs - 705)
    assert.instanceOf(queue.enter(11_299, "a", ticket("r3"), bounds).answer, Waiting)
    const { messages } = queue.beat(11_300, "b", [], [], bounds)
    assert.deepStrictEqual(
      messages.map(({ id }) => id),
      ["r2"]
    )
  })

  for (const [what, peers] of [
    ["one that was known is silent", ["a", "b", "silent"]],
    ["nobody knew the others", []]
  ] as const)
    it(`when ${what}, then no place is given until the time is over`, () => {
      const queue = new FairScheduler(options, 10_000, false)
      for (let now = 10_000; now < 12_500; now += 100) {
        for (const name of ["a", "b"]) queue.beat(now, name, [], ["r1"], bounds, undefined, peers)
        assert.instanceOf(queue.enter(now, "a", ticket("r1"), bounds).answer, Waiting)
      }
      queue.beat(12_500, "a", [], ["r1"], bounds, undefined, peers)
      assert.instanceOf(queue.enter(12_500, "a", ticket("r1"), bounds).answer, Granted)
    })
})
