/** What of a backend's answer is shown and charged, chunk by chunk. */
import { assert, describe, it } from "@effect/vitest"
import { MeteredModel } from "../../support/MeteredModel.ts"
import {
  admitted,
  base,
  chunk,
  type Chunk,
  final,
  read,
  textIn,
  thought,
  times,
  wish,
  word,
  wordsIn
} from "../../support/metered.ts"

describe("a chunk with the final frame", () => {
  it("when more text came with the end than the budget has, then it is cut there, and says length", () => {
    const model = new MeteredModel(500)
    const [one, other] = [admitted(model), admitted(model)]
    for (const request of [one, other]) {
      request.answer([chunk([...times(460, word), final({ promptEvalCount: 40, evalCount: 460 })])])
      read(request)
      assert.strictEqual(request.shown.at(-1)?.doneReason, "length")
    }
    // 296 are held by the first, 204 by the second: nothing is left to take.
    assert.deepStrictEqual([wordsIn(one), wordsIn(other)], [256, 164])
    assert.strictEqual(model.spent, 500)
    assert.strictEqual(model.counted, 500)
    assert.strictEqual(one.shown.at(-1)?.evalCount, 256)
  })

  it("when one frame claims more than what may be shown, then a part of it is shown, and what was held is charged", () => {
    const model = new MeteredModel(600)
    const [one, other] = [admitted(model), admitted(model)]
    one.answer([[final({ text: "a whole book", promptEvalCount: 40, evalCount: 560 })]])
    read(one)
    // 264 of its 560 tokens, and so much of its 12 letters
    assert.deepStrictEqual(textIn(one), "a who")
    assert.strictEqual(one.shown.at(-1)?.evalCount, 264)
    other.leave()
    assert.strictEqual(model.spent, 304 + 40)
  })

  it("when there is room, then it is passed on as it came, with the backend's counts", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model)
    const last = final({ promptEvalCount: 41, evalCount: 900 })
    one.answer([chunk([...times(900, word), last])])
    read(one)
    assert.strictEqual(one.shown.at(-1), last)
    assert.strictEqual(model.spent, 941)
  })

  it("when it says what was cached of the prompt, then the client sees that of the charged prompt, and pays the same", () => {
    const model = new MeteredModel(5000)
    const cached = (promptEvalCount: number, promptEvalCachedCount: number) => {
      const one = admitted(model)
      one.answer([[word, final({ promptEvalCount, promptEvalCachedCount, evalCount: 2 })]])
      read(one)
      return one.shown.at(-1)
    }
    assert.deepInclude(cached(41, 39), { promptEvalCount: 41, promptEvalCachedCount: 39 })
    assert.strictEqual(model.spent, 43)
    assert.deepInclude(cached(41, 4000), { promptEvalCount: 41, promptEvalCachedCount: 41 })
    // A count that is not believed, so that its part is not known.
    const estimated = cached(1e12, 39)
    assert.strictEqual(estimated?.promptEvalCount, 40)
    assert.notProperty(estimated, "promptEvalCachedCount")
  })
})

describe("output that is collected", () => {
  // The bound that docs/threat-model.md states.
  it("when a hostile server writes all it may for fifty at once, then no more is charged or shown than the budget, and no more than a bound for each beyond it", () => {
    const [budget, cap] = [20_000, 4096]
    const model = new MeteredModel(budget)
    const all = Array.from({ length: 50 }, () => model.admit(wish({ tools: [] }, { maxTokens: cap })))
    const running = all.filter((request) => request !== undefined)
    // Each holds its prompt and 2048 tokens; the last one what is left.
    assert.lengthOf(running, Math.ceil(budget / (40 + 2048)))
    let shown = 0
    for (const request of running) {
      const text = "all of it ".repeat(cap)
      request.answer([[final({ text, promptEvalCount: 40, evalCount: request.numPredict })]])
      read(request)
      const charged = request.charged?.tokensOut ?? 0
      const share = textIn(request).length / text.length
      assert.isAtMost(share * request.numPredict, charged + 1)
      shown += 40 + share * request.numPredict
    }
    assert.strictEqual(model.spent, budget)
    assert.isAtMost(shown, budget + running.length)
    const written = running.reduce((sum, { numPredict }) => sum + 40 + numPredict, 0)
    assert.isAbove(written, budget)
    assert.isAtMost(written - budget, (running.length - 1) * cap)
    // The first could have been longer than what was left in the end; the last was sent what was left when it came.
    assert.strictEqual(running[0]?.shown.at(-1)?.doneReason, "length")
    assert.strictEqual(running.at(-1)?.shown.at(-1)?.doneReason, "stop")
  })

  it("when a model's last answers were long, then the next ones hold as much, but for one of a hundred", () => {
    const model = new MeteredModel(1_000_000)
    const tools = () => admitted(model, wish({ tools: [] }, { maxTokens: 65_536 })).hold.held - 40
    assert.strictEqual(tools(), 2048)
    for (let n = 0; n < 98; n += 1) model.rates.answeredUnseen("k", "m", 100)
    assert.strictEqual(tools(), 2048)
    model.rates.answeredUnseen("another key", "m", 65_536)
    model.rates.answeredUnseen("k", "m", 60_000)
    assert.strictEqual(tools(), 60_000)
    model.rates.answeredUnseen("k", "m", 5000)
    assert.strictEqual(tools(), 5000)
    for (let n = 0; n < 100; n += 1) model.rates.answeredUnseen("k", "m", 100)
    assert.strictEqual(tools(), 2048)
  })

  it("when it is longer than its hold, then it is cut only if it is longer than what the budget has at its end", () => {
    for (const [evalCount, otherLeaves, doneReason, charged] of [
      [2000, false, "stop", 2000],
      [4000, false, "length", 2872],
      [4000, true, "stop", 4000]
    ] as const) {
      const model = new MeteredModel(5000)
      const [one, other] = [
        admitted(model, wish({ tools: [] }, { maxTokens: 65_536 })),
        admitted(model, wish({ tools: [] }, { maxTokens: 2048 }))
      ]
      one.answer([[final({ text: "x".repeat(9000), promptEvalCount: 40, evalCount })]])
      one.beat()
      assert.strictEqual(one.hold.held, 2088)
      other.cost.call = {
        ...other.cost.call,
        plan: { ...other.cost.call.plan, collects: false, unseen: false }
      }
      if (otherLeaves) other.leave()
      read(one)
      assert.strictEqual(one.shown.at(-1)?.doneReason, doneReason)
      assert.strictEqual(one.charged?.tokensOut, charged)
    }
  })

  it("when frames have log probabilities alone, then they are counted, and their text is not counted a second time", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model, wish({ logprobs: true }, { maxTokens: 50 }))
    const logprobs = [{ token: "a", logprob: -1 }]
    one.answer([chunk(times(50, { ...base, logprobs })), [word], [final({})]])
    read(one)
    assert.strictEqual(one.cost.output.tokens, 50)
    assert.strictEqual(one.shown.at(-1)?.doneReason, "stop")
    assert.strictEqual(model.spent, 90)
  })

  it("when the client leaves, then it is charged all that it holds, whatever it saw", () => {
    for (const frame of [base, word]) {
      const model = new MeteredModel(5000)
      const one = admitted(model, wish({ tools: [] }, { maxTokens: 65_536 }))
      one.answer([chunk(times(300, frame)), [final({})]])
      one.step()
      one.leave()
      assert.deepStrictEqual(one.charged, { tokensIn: 40, tokensOut: 2048, source: "estimated" })
      assert.strictEqual(model.counted, 40 + 2048)
    }
  })

  it("when the client of a spoken answer leaves, then it is charged for its prompt and what it saw", () => {
    for (const reads of [0, 7]) {
      const model = new MeteredModel(5000)
      const one = admitted(model)
      one.answer([...times(7, word).map((frame): Chunk => [frame]), [final({})]])
      for (let i = 0; i < reads; i += 1) one.step()
      one.leave()
      assert.strictEqual(model.spent, 40 + reads)
    }
  })
})

describe("a Meter that dies under running streams", () => {
  it("when the Meter does not come back, then each stream ends at the end of its hold, and the Meter was asked near it and at it", () => {
    const model = new MeteredModel(1000)
    const two = [admitted(model), admitted(model)]
    model.away = true
    for (const request of two) {
      request.answer(times(900, word).map((frame): Chunk => [frame]))
      read(request)
      assert.include(request.error ?? "", "Unavailable")
      assert.strictEqual(wordsIn(request), 256)
    }
    assert.strictEqual(model.renewals, 4)
    assert.strictEqual(model.spent, 2 * 296)
    model.comeBack()
    assert.strictEqual(model.counted, 2 * 296)
  })

  for (const beats of [true, false])
    it(`when it is back before the hold is used up, ${beats ? "with a heartbeat" : "to be asked at its end"}, then the stream goes on`, () => {
      const model = new MeteredModel(5000)
      const one = admitted(model)
      one.answer([...times(900, word).map((frame): Chunk => [frame]), [final({ evalCount: 900 })]])
      model.away = true
      while (wordsIn(one) < 230) one.step()
      assert.strictEqual(model.renewals, 1)
      model.away = false
      if (beats) one.beat()
      else {
        while (wordsIn(one) < 256) one.step()
        assert.strictEqual(model.renewals, 1)
      }
      read(one)
      assert.isUndefined(one.error)
      assert.strictEqual(wordsIn(one), 900)
    })

  it("when the answer fits in what is held, then it is sent to its end", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model)
    one.answer([chunk(times(250, word)), [final({ promptEvalCount: 40, evalCount: 250 })]])
    model.away = true
    read(one)
    assert.isUndefined(one.error)
    assert.strictEqual(model.spent, 290)
  })
})

describe("an answer in two runs", () => {
  const inTwo = { think: true, format: "json" }

  it("when the first run reaches its bound, then the second goes on, and both are charged, each token once", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model, wish(inTwo, { maxTokens: 30, promptEstimate: 10 }))
    assert.strictEqual(one.numPredict, 30)
    one.answer([
      chunk(times(28, thought)),
      chunk(times(25, word)),
      [final({ promptEvalCount: 39, evalCount: 25 })]
    ])
    read(one)
    assert.strictEqual(one.shown.at(-1)?.doneReason, "stop")
    assert.strictEqual(wordsIn(one), 53)
    // The second run has read what the first one wrote.
    assert.deepStrictEqual(one.cost.usage, { tokensIn: 11, tokensOut: 53, source: "counted" })
    assert.strictEqual(model.spent, 39 + 25)
  })

  it("when the reasoning alone has reached its bound, then there was one run, and its counts are the backend's", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model, wish(inTwo, { maxTokens: 30, promptEstimate: 10 }))
    one.answer([
      chunk(times(30, thought)),
      [final({ promptEvalCount: 11, evalCount: 30, doneReason: "length" })]
    ])
    read(one)
    assert.deepStrictEqual(one.cost.usage, { tokensIn: 11, tokensOut: 30, source: "backend" })
  })

  it("when the budget has room for less than both, then both fit in it together", () => {
    const model = new MeteredModel(100)
    const one = admitted(model, wish(inTwo, { maxTokens: 1000 }))
    assert.strictEqual(one.numPredict, 30)
    one.answer([
      chunk(times(30, thought)),
      chunk(times(30, word)),
      [final({ promptEvalCount: 70, evalCount: 30 })]
    ])
    read(one)
    assert.strictEqual(model.spent, 100)
  })
})
