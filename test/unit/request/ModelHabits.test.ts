import { assert, describe, it } from "@effect/vitest"
import { Habits } from "../../../src/gates/limits/ModelHabits.ts"

describe("a model", () => {
  it("when a model has shown output to anybody, then it counts as one that does, for each key until it holds output back from that key", () => {
    const rates = new Habits()
    assert.isFalse(rates.speaks("k", "m"))
    rates.spoken("k", "m")
    assert.isTrue(rates.speaks("k", "m"))
    assert.isTrue(rates.speaks("other", "m"))
    assert.isFalse(rates.speaks("k", "other"))
    rates.collected("k", "m")
    assert.isFalse(rates.speaks("k", "m"))
    assert.isTrue(rates.speaks("other", "m"), "what one key asks for does not slow the others down")
    rates.spoken("k", "m")
    assert.isTrue(rates.speaks("k", "m"))
  })

  it("when more models and keys are seen than are remembered, then the oldest are forgotten", () => {
    const rates = new Habits()
    for (let i = 0; i <= 256; i += 1) rates.spoken("k", `m${i}`)
    assert.isFalse(rates.speaks("k", "m0"))
    assert.isTrue(rates.speaks("k", "m1"))
    for (let i = 0; i <= 4096; i += 1) rates.collected(`k${i}`, "m1")
    assert.isTrue(rates.speaks("k0", "m1"))
    assert.isFalse(rates.speaks("k1", "m1"))
  })
})
