/** How much of an answer is taken: honest answers fit, and nothing beyond a bound is kept. */
import { uncounted } from "../../../../src/memory/MemoryLedger.ts"
import { noOutput } from "../../../../src/domain/outputPlan.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { frameBoundsOf, showBytes, vectorBytesOf } from "../../../../src/backend/answerBounds.ts"
import { Backend } from "../../../../src/backend/Backend.ts"
import { fake } from "../../../support/FakeBackend.ts"
import { callOf, permitFor } from "../../../support/permits.ts"
import { failure, forward, named, run, stream, test } from "../calls.ts"

const mib = 1024 * 1024

describe("the bounds of an answer", () => {
  it("when a request asks for an answer, then the bounds follow from what it asked for", () => {
    const plain = frameBoundsOf(callOf({}, 4096))
    assert.deepStrictEqual(plain, { frames: 4352, lineBytes: 0.75 * mib, bytes: 0.75 * mib + 4352 * 512 })
    const logprobs = frameBoundsOf(callOf({ body: { logprobs: true, top_logprobs: 20 } }, 4096))
    assert.strictEqual(logprobs.bytes - plain.bytes, 4096 * 21 * 192)
    assert.strictEqual(frameBoundsOf({ ...callOf({}, 100), plan: { ...noOutput, runs: 2 } }).frames, 456)
    assert.isBelow(frameBoundsOf(callOf({ kind: "generate", promptBytes: 1e9 }, 1e6)).lineBytes, 8 * mib + 1)
    const input = Array.from({ length: 2048 }, () => "a")
    assert.strictEqual(vectorBytesOf(callOf({ body: { input } }).request), 32 * mib)
    assert.strictEqual(vectorBytesOf(callOf({ body: { input: "a" } }).request), 384 * 1024)
  })

  test("when an answer keeps to its bound, then it passes, collected in one line with the longest tokens too", function* (backend) {
    const text = " ".repeat(128 * 4096)
    backend.script(stream([fake.chat(text), fake.done()]))
    assert.strictEqual((yield* run(callOf({}, 4096))).at(0)?.text, text)
    const context = Array.from({ length: 60_000 }, (_, i) => 100_000 + i)
    backend.script(stream([fake.generate("a"), fake.done("generate", { context })]))
    assert.lengthOf((yield* run(callOf({ kind: "generate" }, 100))).at(-1)?.context ?? [], 60_000)
  })

  test("when a line, or all lines together, are larger, then the answer fails as the backend's failure", function* (backend) {
    backend.script(stream([fake.chat("a".repeat(mib)), fake.done()]))
    assert.strictEqual(yield* failure, "protocol")
    const large = fake.chat("a".repeat(50_000))
    backend.script(stream([...Array.from({ length: 40 }, () => large), fake.done()]))
    assert.strictEqual(yield* failure, "protocol")
    backend.script({ does: "flood", line: "a".repeat(100_000) })
    assert.strictEqual(named(yield* Effect.flip(Effect.scoped(forward()))), "protocol")
  })

  test("when an answer has more tool calls than any needs, in one line or in many, then it fails", function* (backend) {
    const call = { function: { name: "f", arguments: {} } }
    const message = (count: number) => ({
      role: "assistant",
      content: "",
      tool_calls: Array.from({ length: count }, () => call)
    })
    const calls = (count: number) => ({ ...fake.chat(""), message: message(count) })
    backend.script(stream([calls(500), calls(500), fake.done()]))
    assert.lengthOf(yield* run(callOf({}, 4096)), 3)
    for (const lines of [[calls(1001)], [calls(500), calls(501)]]) {
      backend.script(stream([...lines, fake.done()]))
      assert.strictEqual(named(yield* Effect.flip(run(callOf({}, 4096)))), "protocol")
    }
  })

  test("when an answer in one object is larger than its bound, then it is not read to its end", function* (fakeBackend) {
    const backend = yield* Backend
    const permit = permitFor("fake:latest", callOf({ kind: "embed", body: { input: "a" } }, 0))
    fakeBackend.script(
      { does: "flood", line: "1,".repeat(8000) },
      { does: "flood", line: " ".repeat(16_000) }
    )
    assert.strictEqual(named(yield* Effect.flip(backend.embed(permit, uncounted))), "protocol")
    assert.strictEqual(
      named(yield* Effect.flip(backend.show(permitFor("fake:latest"), uncounted))),
      "protocol"
    )
    for (const { written } of fakeBackend.requests) assert.isBelow(written, showBytes + 8 * mib)
  })
})

test("when a line or a description has more objects and lists than any needs, then it is not parsed", function* (fakeBackend) {
  const backend = yield* Backend
  const objects = (count: number) => ({ x: Array.from({ length: count }, () => ({})) })
  fakeBackend.script(
    stream([fake.toolCall("f", objects(60_000)), fake.done()]),
    stream([fake.toolCall("f", objects(66_000)), fake.done()]),
    { does: "answer", status: 200, body: JSON.stringify(objects(60_000)) },
    { does: "answer", status: 200, body: JSON.stringify(objects(66_000)) }
  )
  assert.lengthOf(yield* run(callOf({}, 4096)), 2)
  assert.strictEqual(named(yield* Effect.flip(run(callOf({}, 4096)))), "protocol")
  yield* Effect.scoped(backend.show(permitFor("fake:latest"), uncounted))
  assert.strictEqual(
    named(yield* Effect.flip(Effect.scoped(backend.show(permitFor("fake:latest"), uncounted)))),
    "protocol"
  )
})
