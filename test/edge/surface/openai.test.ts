import { assert } from "@effect/vitest"
import { fake } from "../../support/FakeBackend.ts"
import { Fake, layerGateway } from "../../support/Gateway.ts"
import { ask, chat, events, json } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

const path = "/v1/chat/completions"
const streaming = (more: object = {}) => chat({ stream: true, ...more })

inWorld(layerGateway())("the OpenAI surface", (test) => {
  test("when a completion is asked for, then it takes one prompt, echoes it, and has log probabilities in the legacy shape", function* () {
    const backend = yield* Fake
    const complete = (more: object) => ask("/v1/completions", { model: "m", ...more })
    const one = yield* complete({ prompt: ["a"], suffix: "z" })
    assert.deepInclude(one.sent, { prompt: "a", suffix: "z" })
    assert.match(json(one).id, /^cmpl-/)
    assert.deepInclude(json(one), { object: "text_completion", model: "m" })
    assert.deepStrictEqual(json(one).choices, [
      { text: "Hello world!", index: 0, logprobs: null, finish_reason: "stop" }
    ])
    assert.strictEqual(
      json(yield* complete({ prompt: "Say: ", echo: true })).choices[0].text,
      "Say: Hello world!"
    )
    const { chunks, done } = events(yield* complete({ prompt: "Say: ", echo: true, stream: true }))
    assert.isTrue(done)
    assert.strictEqual(chunks.map(({ choices }) => choices[0].text).join(""), "Say: Hello world!")
    assert.strictEqual(chunks[0].choices[0].text, "Say: Hello")
    assert.deepStrictEqual(chunks.at(-1).usage, {
      prompt_tokens: 7,
      completion_tokens: 3,
      total_tokens: 10
    })

    const logprobs = [
      { token: "Hi", logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: "Hi", logprob: -0.5 }] }
    ]
    backend.script({
      does: "stream",
      lines: [{ ...fake.generate("Hi"), logprobs }, fake.done("generate")]
    })
    const told = yield* complete({ prompt: "a", logprobs: 1 })
    assert.deepInclude(told.sent, { logprobs: true, top_logprobs: 1 })
    assert.deepStrictEqual(json(told).choices[0].logprobs, {
      tokens: ["Hi"],
      token_logprobs: [-0.5],
      top_logprobs: [{ Hi: -0.5 }],
      text_offset: [0]
    })
  })

  test("when a chat has log probabilities, then they have every field that OpenAI's types require", function* () {
    const backend = yield* Fake
    const lines = [{ ...fake.chat("Hi"), logprobs: [{ token: "Hi", logprob: -0.5 }] }, fake.done()]
    backend.script({ does: "stream", lines }, { does: "stream", lines })
    const expected = {
      content: [{ token: "Hi", logprob: -0.5, bytes: null, top_logprobs: [] }],
      refusal: null
    }
    const answer = yield* ask(path, chat({ logprobs: true, top_logprobs: 3 }))
    assert.deepStrictEqual(json(answer).choices[0].logprobs, expected)
    assert.deepInclude(answer.sent, { logprobs: true, top_logprobs: 3 })
    const { chunks } = events(yield* ask(path, streaming({ logprobs: true })))
    assert.deepStrictEqual(chunks[0].choices[0].logprobs, expected)
  })
})
