/** Several gateways on twins of their stores, in the order of a seed (`lab/simulation`). */
import { setImmediate } from "node:timers/promises"
import { assert, it } from "@effect/vitest"
import { simulate } from "./simulate.ts"
import type { Told } from "./Simulation.ts"
import { World } from "./World.ts"
import { Invariants } from "./Invariants.ts"

it("when 200 seeds are played, then no invariant breaks", async () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    // Node frees what weak references hold only between two turns of its loop.
    await setImmediate()
    const { failure } = simulate(seed, { steps: 1000 })
    assert.isUndefined(
      failure,
      `${failure?.invariant}: ${failure?.why}. npm run simulate -- --seed ${seed} --steps 1000`
    )
  }
})

it("when a seed is played again, then every line of its trace is the same, and another seed has another trace", () => {
  const traceOf = (seed: number) => {
    const lines: Array<Told> = []
    simulate(seed, { steps: 1000, tell: (told) => void lines.push(told) })
    return lines
  }
  const first = traceOf(7)
  assert.isAbove(first.length, 100)
  assert.deepStrictEqual(traceOf(7), first)
  assert.notDeepEqual(traceOf(11), first)
})

it("when the counters get less than was used, then it is found", () => {
  const world = new World(3)
  const invariants = new Invariants(world)
  const { counters } = world.stores.redis
  const settle = counters.settle.bind(counters)
  counters.settle = (reservation, used, now, keepSlot) => settle(reservation, used - 1, now, keepSlot)
  const play = () => {
    for (let step = 1; step < 6000 && world.simulation.advance(); step += 1)
      if (step % 100 === 0) invariants.check()
  }
  assert.strictEqual(world.possible.size, 0)
  assert.throws(play, /in the counter/)
})
