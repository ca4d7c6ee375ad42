/** With one model the queue decides as it did before it knew of models. */
import { createHash } from "node:crypto"
import { assert, it } from "@effect/vitest"
import { FairScheduler } from "../../../../src/gates/queue/FairScheduler.ts"
import { decisions, type Trace } from "../../../support/queueTrace.ts"

/** SHA-256 of what the queue without turns decided of these traces: 24,000 random calls. */
const withoutTurns = "8730a903d0a2e63c4523549de6318557a7e8b1fa4b5ef11c6f1594066046541d"

const seeds = Array.from({ length: 60 }, (_, i) => i + 1)

const decided = (seed: number, more: Omit<Trace, "seed" | "steps">) =>
  decisions(new FairScheduler({ leaseMs: 30_000, graceMs: 2500, batchEveryMs: 600_000 }, 1_000_000, true), {
    seed,
    steps: 400,
    ...more
  })

const hashOf = (more: Omit<Trace, "seed" | "steps">): string => {
  const hash = createHash("sha256")
  for (const seed of seeds) hash.update(decided(seed, more).join("\n"))
  return hash.digest("hex")
}

const one = () => "m"
const narrow = { maxLoadedModels: 1, turnMaxMs: 1 }

it("when all requests are for one model, then the queue decides as it did without turns, whatever the server lists", () => {
  assert.strictEqual(hashOf({ model: one, bounds: narrow }), withoutTurns)
  assert.strictEqual(hashOf({ model: one, bounds: {} }), withoutTurns)
  for (const names of [["m"], []])
    assert.strictEqual(
      hashOf({ model: one, bounds: narrow, seen: { names, agoMs: 0 } }),
      withoutTurns,
      names.join()
    )
})

it("when all models fit, then the queue decides as with one", () => {
  for (const seed of seeds)
    assert.deepStrictEqual(
      decided(seed, { model: (n) => `m${n % 3}`, bounds: { maxLoadedModels: 3 } }),
      decided(seed, { model: one, bounds: narrow }),
      `seed ${seed}`
    )
})

it("when two models do not fit together, then the decisions are others: the traces tell", () => {
  const others = seeds.filter(
    (seed) =>
      decided(seed, { model: (n) => `m${n % 2}`, bounds: narrow }).join() !==
      decided(seed, { model: one, bounds: narrow }).join()
  )
  assert.isAbove(others.length, seeds.length / 2)
})
