/** Which requests are traced, and how a trace is continued. */
import { assert, describe, it } from "@effect/vitest"
import { makeSampler, readTraceparent } from "../../../src/observability/Trace.ts"

const trace = (n: number) => n.toString(16).padStart(32, "0")
const sampledParent = (n: number) => readTraceparent(`00-${trace(n)}-00f067aa0ba902b7-01`)

describe("sampling", () => {
  it("when a ratio is set, then that part of all traces is sampled, whether they are ours or clients'", () => {
    const isSampled = makeSampler(0.25)
    const [ours, theirs] = [new Array<boolean>(), new Array<boolean>()]
    for (let n = 1; n <= 4000; n++) {
      ours.push(isSampled(undefined))
      theirs.push(isSampled(sampledParent(n)))
    }
    for (const all of [ours, theirs]) assert.closeTo(all.filter(Boolean).length, 1000, 200)
  })

  it("when a trace has several requests, then all of them are sampled or none", () => {
    const isSampled = makeSampler(0.5)
    for (let n = 1; n <= 50; n++) assert.strictEqual(isSampled(sampledParent(n)), isSampled(sampledParent(n)))
  })

  it("when a client knows ids that one process samples, then they tell nothing about another", () => {
    const [one, other] = [makeSampler(0.1), makeSampler(0.1)]
    const known = Array.from({ length: 5000 }, (_, n) => sampledParent(n + 1)).filter(one)
    assert.isBelow(known.filter(other).length, known.length / 4)
  })

  it("when a client does not sample, then no ratio does", () => {
    const parent = readTraceparent(`00-${trace(1)}-00f067aa0ba902b7-02`)
    assert.isFalse(makeSampler(1)(parent))
  })
})

describe("traceparent", () => {
  it("when the header is repeated, cut or very long, then it is ignored", () => {
    const good = `00-${trace(1)}-00f067aa0ba902b7-01`
    for (const bad of [`${good}, ${good}`, good.slice(0, -1), `01${good.slice(2)}-${"x".repeat(600)}`, ""])
      assert.isUndefined(readTraceparent(bad), bad)
  })
})
