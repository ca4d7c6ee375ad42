import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { InferenceRequest } from "../../../src/domain/Inference.ts"
import {
  checkWindow,
  isLikelyCut,
  leastTokens,
  leastTokensOf,
  noPolicy,
  refusingOverflow,
  wasCut,
  type WindowPolicy,
  windowOf
} from "../../../src/domain/promptWindow.ts"
import { withPromptSize } from "../../../src/http/dialect/promptEstimate.ts"
import { modelNamed, prepared } from "../../support/permits.ts"

const chat = (content: string, more: InferenceRequest["body"] = {}, role = "user"): InferenceRequest =>
  withPromptSize({
    kind: "chat",
    model: "m",
    stream: true,
    body: { messages: [{ role, content }], ...more },
    options: {},
    maxTokens: undefined
  })

const words = (count: number) => "word ".repeat(count)
const refusing: WindowPolicy = { defaultTokens: undefined, refuses: true }

const isRefused = (request: InferenceRequest, window: number | undefined, policy = refusing): boolean =>
  Result.isFailure(checkWindow(request, window, policy))

describe("the context window", () => {
  it("when several figures are known, then the request's wins over the model's, and that over the server's", () => {
    const model = modelNamed("m")
    const policy = { defaultTokens: 4096, refuses: false }
    const sent = { options: { num_ctx: 1000 } }
    assert.strictEqual(windowOf(sent, { ...model, numCtx: 2000 }, policy), 1000)
    assert.strictEqual(windowOf({ options: {} }, { ...model, numCtx: 2000 }, policy), 2000)
    assert.strictEqual(windowOf({ options: {} }, model, policy), 4096)
    assert.isUndefined(windowOf({ options: {} }, { ...model, contextLength: 512 }, noPolicy))
  })

  it("when the model holds less, then that is the window; when it sees images, then it has 2048 at least", () => {
    const model = { ...modelNamed("m"), contextLength: 512 }
    assert.strictEqual(windowOf({ options: { num_ctx: 1000 } }, model, noPolicy), 512)
    const seeing = { ...modelNamed("m"), capabilities: ["completion", "vision"] }
    assert.strictEqual(windowOf({ options: { num_ctx: 1000 } }, seeing, noPolicy), 2048)
  })
})

describe("the least tokens of a text", () => {
  it("when a text has words, then each is a token at least, and a long one is several", () => {
    assert.strictEqual(leastTokensOf(""), 0)
    assert.strictEqual(leastTokensOf(" \n\t "), 0)
    assert.strictEqual(leastTokensOf("one  two\nthree"), 3)
    assert.strictEqual(leastTokensOf("x".repeat(128)), 1)
    assert.strictEqual(leastTokensOf("x".repeat(129)), 2)
  })

  it("when a template may leave a text out, then it does not count", () => {
    assert.strictEqual(leastTokens(chat(words(10))), 10)
    for (const role of ["system", "assistant", "tool"]) {
      assert.strictEqual(leastTokens(chat(words(10), {}, role)), 0, role)
    }
    const tools = [{ type: "function", function: { name: "f", description: words(10) } }]
    assert.strictEqual(leastTokens(chat("one", { tools })), 1)
  })

  it("when there are several inputs, then the longest counts, because each has a window of its own", () => {
    const embed = (input: ReadonlyArray<string>) =>
      withPromptSize({ kind: "embed", model: "m", stream: false, body: { input }, options: {}, maxTokens: 0 })
    const several = embed([words(40), words(50), words(60)])
    assert.strictEqual(leastTokens(several), 60)
    assert.isFalse(isRefused(several, 60))
    assert.isTrue(isRefused(several, 59))
    assert.isFalse(isLikelyCut(prepared(several), 80))
    assert.isUndefined(wasCut(prepared(several), 100, { promptEvalCount: 150 }))
  })
})

describe("PROMPT_OVERFLOW=refuse", () => {
  it("when a prompt has more words than the window tokens, then it is refused; when it may fit, then not", () => {
    assert.isTrue(isRefused(chat(words(101)), 100))
    assert.isFalse(isRefused(chat(words(100)), 100))
    // An estimate of 500 tokens; but a run of signs can be a few tokens.
    assert.isFalse(isRefused(chat("=".repeat(2000)), 100))
    assert.isFalse(isRefused(chat(words(101)), undefined))
    assert.isFalse(isRefused(chat(words(101)), 100, noPolicy))
  })

  it("when the client itself wants its prompt cut, then it is not refused, and its wish is sent", () => {
    const request = chat(words(101), { truncate: true })
    assert.isFalse(isRefused(request, 100))
    assert.deepInclude(refusingOverflow(request).body, { truncate: true, shift: false })
    assert.deepInclude(refusingOverflow(chat("hi")).body, { truncate: false, shift: false })
  })
})

describe("the counts of the model server", () => {
  it("when prompt and answer reach the window, then the prompt was cut", () => {
    const request = chat("hi")
    assert.isTrue(wasCut(prepared(request), 100, { promptEvalCount: 100 }))
    assert.isTrue(wasCut(prepared(request), 100, { promptEvalCount: 60, evalCount: 41 }))
    assert.isFalse(wasCut(prepared(request), 100, { promptEvalCount: 60, evalCount: 40 }))
    assert.isFalse(wasCut(prepared(request), 100, { promptEvalCount: 99 }))
  })

  it("when the count is less than the words of the prompt, then it was cut, whatever the window is", () => {
    for (const window of [undefined, 100, 10_000]) {
      assert.isTrue(wasCut(prepared(chat(words(300))), window, { promptEvalCount: 90 }), String(window))
    }
  })

  it("when the prompt was likely to be cut, then a count far below its text says that it was", () => {
    const request = chat(words(2000), {}, "tool")
    assert.isTrue(isLikelyCut(prepared(request), 1000))
    assert.isTrue(wasCut(prepared(request), 1000, { promptEvalCount: 900 }))
    // Between the two the counts do not tell.
    assert.isUndefined(wasCut(prepared(chat("слово ".repeat(1000))), 2600, { promptEvalCount: 2500 }))
  })

  it("when a count or the window is missing, then nothing is known", () => {
    assert.isUndefined(wasCut(prepared(chat("hi")), 100, {}))
    assert.isUndefined(wasCut(prepared(chat("hi")), 100, { promptEvalCount: 0 }))
    assert.isUndefined(wasCut(prepared(chat("hi")), undefined, { promptEvalCount: 5 }))
  })
})
