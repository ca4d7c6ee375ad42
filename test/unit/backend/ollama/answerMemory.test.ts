/** What an answer takes of the memory for answers while it is collected, and what becomes of it when there is none. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope, Stream } from "effect"
import { freeBytes } from "../../../../src/backend/AnswerAccount.ts"
import { AnswerMemory } from "../../../../src/backend/AnswerMemory.ts"
import { Backend } from "../../../../src/backend/Backend.ts"
import { parsedFactor } from "../../../../src/backend/answerBounds.ts"
import { fake } from "../../../support/FakeBackend.ts"
import { callerWith, callOf, permitFor } from "../../../support/permits.ts"
import { forward, named, stream, withBackend } from "../calls.ts"

const mib = 1024 * 1024
const logprobs = Array.from({ length: 20 }, () => ({ token: "word", logprob: -0.5, bytes: [1, 2, 3, 4] }))
const frame = { ...fake.chat("word"), logprobs }
const lineBytes = JSON.stringify(frame).length
const frames = 400

/** Bytes that are taken at the end of an answer. */
const takenBy = (isStreamed: boolean) =>
  Effect.gen(function* () {
    const memory = yield* AnswerMemory
    const call = callOf({ stream: isStreamed, body: { logprobs: true, top_logprobs: 20 } }, 4096)
    const answer = Effect.flatMap(forward(call), Stream.runDrain)
    const taken = yield* Effect.scoped(Effect.andThen(answer, Effect.sync(memory.bytes)))
    assert.strictEqual(memory.bytes(), 0, "given back with the Scope")
    return taken
  })

describe("the memory of an answer", () => {
  it.live("when an answer is made into one object, then all of it counts until its request is over", () =>
    withBackend((backend) =>
      Effect.gen(function* () {
        const lines = [...Array.from({ length: frames }, () => frame), fake.done()]
        backend.script(stream(lines, { together: true }), stream(lines, { together: true }))
        const taken = yield* takenBy(false)
        assert.isAtLeast(taken, frames * lineBytes - freeBytes)
        assert.isAtMost(taken, 2 * frames * lineBytes + freeBytes)
        assert.isAtMost(yield* takenBy(true), freeBytes)
      })
    )
  )

  it.live("when a line is not whole yet, then it counts too", () =>
    withBackend((backend) =>
      Effect.gen(function* () {
        const memory = yield* AnswerMemory
        backend.script(stream([fake.chat("a"), "b".repeat(mib / 2)], { unterminated: true, ends: "hang" }))
        yield* Effect.forkScoped(Effect.flatMap(forward(callOf({}, 4096)), Stream.runDrain))
        yield* backend.until(() => memory.bytes() >= mib / 2 - freeBytes)
        assert.isAtMost(memory.bytes(), mib / 2)
      }).pipe(Effect.scoped)
    )
  )

  it.live("when an answer is parsed as a whole, then it counts as what the parsed objects may take", () =>
    withBackend((fakeBackend) =>
      Effect.gen(function* () {
        const [backend, memory] = [yield* Backend, yield* AnswerMemory]
        const body = JSON.stringify({ license: "a".repeat(100_000) })
        fakeBackend.script({ does: "answer", status: 200, body })
        yield* backend.show(permitFor("fake:latest"))
        assert.strictEqual(memory.bytes(), parsedFactor * body.length - freeBytes)
      }).pipe(Effect.scoped)
    )
  )

  it.live("when there is none, then the rest of an answer is not read until there is some", () =>
    withBackend(
      (fakeBackend) =>
        Effect.gen(function* () {
          const [backend, memory] = [yield* Backend, yield* AnswerMemory]
          const other = yield* Scope.make()
          const share = yield* Scope.provide(memory.share(callerWith("all")), other)
          assert.isFalse(share.tryCollect(mib))
          yield* share.collect(mib)
          const numbers = "0.12345,".repeat(10_000)
          const input = Array.from({ length: 200 }, () => "a")
          const list = `[${input.map((_, n) => `[${numbers}${n}]`).join(",")}]`
          const body = `{"embeddings":${list}}`
          fakeBackend.script({ does: "answer", status: 200, body })
          const asking = yield* Effect.forkChild(
            backend.embed(permitFor("fake:latest", callOf({ kind: "embed", body: { input } }, 0))),
            { startImmediately: true }
          )
          yield* fakeBackend.until(() => memory.waiting() === 1)
          yield* Effect.sleep("100 millis")
          assert.deepStrictEqual([asking.pollUnsafe(), memory.bytes()], [undefined, mib - freeBytes])
          yield* Scope.close(other, Exit.void)
          const embeddings = yield* Fiber.join(asking)
          assert.isTrue(Buffer.concat(embeddings.list ?? []).equals(Buffer.from(list)), "in order")
          assert.isAtLeast(memory.bytes(), body.length - freeBytes)
          embeddings.release?.()
          const left = [...embeddings.vectors.map(({ json }) => json), ...(embeddings.list ?? [])]
          const bytes = left.reduce((sum, { length }) => sum + length, 0)
          assert.isAtMost(bytes, Buffer.poolSize)
        }).pipe(Effect.scoped),
      {},
      AnswerMemory.layer({ maxBytes: mib })
    )
  )

  it.live(
    "when there is none in time, then the answer fails as crowded, which is no failure of the backend",
    () =>
      withBackend(
        (fakeBackend) =>
          Effect.gen(function* () {
            const [backend, memory] = [yield* Backend, yield* AnswerMemory]
            const share = yield* memory.share(callerWith("all"))
            yield* share.collect(mib)
            const body = `{"license":"${"a".repeat(200_000)}"}`
            fakeBackend.script({ does: "answer", status: 200, body })
            const scope = yield* Scope.make()
            const error = yield* Effect.flip(Scope.provide(backend.show(permitFor("fake:latest")), scope))
            yield* Scope.close(scope, Exit.void)
            assert.deepInclude(error, { _tag: "Unavailable", crowded: true, retryAfterS: 1 })
            assert.strictEqual(named(error), "Unavailable")
            assert.strictEqual(memory.bytes(), mib - freeBytes)
          }).pipe(Effect.scoped),
        {},
        AnswerMemory.layer({ maxBytes: mib, maxWaitMs: 300 })
      )
  )
})
