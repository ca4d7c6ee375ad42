/** What turns buy: a server that holds one model and needs eight seconds to load another, in virtual time. */
import { assert, describe, it } from "@effect/vitest"
import {
  boundOf,
  light,
  makeWorld,
  type Queue,
  replicas,
  simulate,
  teams,
  weighted
} from "../../../support/turns.ts"
import { testWith } from "../../../support/testWith.ts"

const test = testWith(it.effect)

describe("turns", () => {
  test("when two models do not fit together, then three times as many are served, and nobody waits beyond the bound", function* () {
    const world = makeWorld(teams)
    const queues: ReadonlyArray<Queue> = [{ kind: "none" }, { kind: "blind", replicas: yield* replicas }]
    const turns = yield* simulate(world, { kind: "models", replicas: yield* replicas })
    for (const queue of queues) {
      const { served } = yield* simulate(world, queue)
      assert.isAtLeast(turns.served, 3 * served, queue.kind)
    }
    assert.isAtMost(turns.waitOf([light.name], 1), boundOf(world))
  })

  test("when two floods of two models have weights 1 and 3, then they are served 1 to 3 within a tenth", function* () {
    const turns = yield* simulate(makeWorld(weighted), { kind: "models", replicas: yield* replicas })
    const ratio = turns.servedOf("three") / turns.servedOf("one")
    assert.isAtLeast(ratio, 2.7)
    assert.isAtMost(ratio, 3.3)
  })

  test("when two clients ask one thing after the other, then a model waits a moment for its own to come back", function* () {
    const world = makeWorld(
      teams.slice(0, 2).map((tenant, i) => ({ ...tenant, models: [`m${i}`], load: { always: 1 } }))
    )
    const turns = yield* simulate(world, { kind: "models", replicas: yield* replicas })
    const { served } = yield* simulate(world, { kind: "none" })
    assert.isAtLeast(turns.served, 3 * served)
  })
})
