import { assert, describe, it } from "@effect/vitest"
import { assumedRate, TokenRates } from "../../../src/gates/limits/TokenRates.ts"

it("when a model has answered, then it is estimated by its answers, and any other one by the default", () => {
  const rates = new TokenRates()
  assert.strictEqual(rates.estimate("m", 2000), 2 * assumedRate)
  rates.observe("m", 100, 1000)
  assert.strictEqual(rates.estimate("m", 2500), 250)
  rates.observe("m", 200, 1000)
  assert.strictEqual(rates.estimate("m", 1000), 120)
  assert.strictEqual(rates.estimate("other", 1000), assumedRate)
  assert.strictEqual(rates.estimate("m", -5), 0)
})

it("when an answer has few tokens or took no time, then it changes no estimate", () => {
  const rates = new TokenRates()
  rates.observe("m", 7, 10_000)
  rates.observe("m", 100, 0)
  assert.strictEqual(rates.estimate("m", 1000), assumedRate)
})

it("when more models answer than are remembered, then the one that was used longest ago is forgotten", () => {
  const rates = new TokenRates()
  for (let i = 0; i < 256; i += 1) rates.observe(`m${i}`, 1000, 1000)
  rates.observe("m0", 1000, 1000)
  rates.observe("new", 1000, 1000)
  assert.strictEqual(rates.estimate("m1", 1000), assumedRate)
  assert.strictEqual(rates.estimate("m0", 1000), 1000)
})

describe("a model", () => {
  it("when a model has shown output to anybody, then it counts as one that does, for each key until it holds output back from that key", () => {
    const rates = new TokenRates()
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
    const rates = new TokenRates()
    for (let i = 0; i <= 256; i += 1) rates.spoken("k", `m${i}`)
    assert.isFalse(rates.speaks("k", "m0"))
    assert.isTrue(rates.speaks("k", "m1"))
    for (let i = 0; i <= 4096; i += 1) rates.collected(`k${i}`, "m1")
    assert.isTrue(rates.speaks("k0", "m1"))
    assert.isFalse(rates.speaks("k1", "m1"))
  })
})
