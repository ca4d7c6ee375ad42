/** What an answer takes of its memory while it is collected. */
import { assert, describe } from "@effect/vitest"
import { Effect, Stream } from "effect"
import type { AnswerShare } from "../../../../src/memory/MemoryLedger.ts"
import { parsedFactor } from "../../../../src/backend/answerBounds.ts"
import { Backend } from "../../../../src/backend/Backend.ts"
import { Unavailable } from "../../../../src/domain/Errors.ts"
import { fake } from "../../../support/FakeBackend.ts"
import { callOf, permitFor } from "../../../support/permits.ts"
import { stream, test } from "../calls.ts"

const mib = 1024 * 1024
const logprobs = Array.from({ length: 20 }, () => ({ token: "word", logprob: -0.5, bytes: [1, 2, 3, 4] }))
const frame = { ...fake.chat("word"), logprobs }
const lineBytes = JSON.stringify(frame).length
const frames = 400

/** A share that remembers what it was asked for, and grants at most `most` bytes. */
const recorded = (most = Number.POSITIVE_INFINITY) => {
  const asked: Array<number> = []
  const share: AnswerShare = {
    collect: (bytes) =>
      Effect.suspend(() => {
        asked.push(bytes)
        return bytes <= most
          ? Effect.void
          : new Unavailable({ gate: "Limiter", crowded: true, cause: "full" })
      }),
    hold: () => Effect.void
  }
  return { share, most: () => Math.max(0, ...asked) }
}

const forward = (share: AnswerShare, isStreamed: boolean) => {
  const call = callOf({ stream: isStreamed, body: { logprobs: true, top_logprobs: 20 } }, 4096)
  return Effect.scoped(
    Effect.flatMap(Backend, (backend) =>
      Effect.flatMap(backend.forward(permitFor("fake:latest", call), share), (answer) =>
        Stream.runDrain(answer)
      )
    )
  )
}

describe("the memory of an answer", () => {
  test("when an answer is made into one object, then all of it counts; a stream counts what is not sent", function* (backend) {
    const lines = [...Array.from({ length: frames }, () => frame), fake.done()]
    backend.script(stream(lines, { together: true }), stream(lines, { together: true }))
    const [whole, streamed] = [recorded(), recorded()]
    yield* forward(whole.share, false)
    yield* forward(streamed.share, true)
    assert.isAtLeast(whole.most(), frames * lineBytes)
    assert.isAtMost(streamed.most(), frames * lineBytes + mib)
    assert.isBelow(streamed.most(), whole.most())
  })

  test("when a line is not whole yet, then it counts too", function* (backend) {
    const { most, share } = recorded()
    backend.script(stream([fake.chat("a"), "b".repeat(mib / 2)], { unterminated: true, ends: "hang" }))
    yield* Effect.forkScoped(forward(share, true))
    yield* backend.until(() => most() >= mib / 2)
  })

  test("when an answer is parsed as a whole, then it counts as what the parsed objects may take", function* (fakeBackend) {
    const [backend, { most, share }] = [yield* Backend, recorded()]
    const body = JSON.stringify({ license: "a".repeat(100_000) })
    fakeBackend.script({ does: "answer", status: 200, body })
    yield* backend.show(permitFor("fake:latest"), share)
    assert.strictEqual(most(), parsedFactor * body.length)
  })

  test("when there is none, then the answer fails, and its connection is closed", function* (fakeBackend) {
    const [backend, { share }] = [yield* Backend, recorded(mib)]
    const input = Array.from({ length: 200 }, () => "a")
    const list = input.map(() => `[${"0.12345,".repeat(10_000)}1]`).join(",")
    fakeBackend.script({ does: "answer", status: 200, body: `{"embeddings":[${list}]}` })
    const permit = permitFor("fake:latest", callOf({ kind: "embed", body: { input } }, 0))
    const error = yield* Effect.flip(backend.embed(permit, share))
    assert.deepInclude(error, { _tag: "Unavailable", crowded: true })
    yield* fakeBackend.until(() => fakeBackend.requests[0]?.closedAt !== undefined)
  })
})
