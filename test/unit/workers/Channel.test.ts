/** Questions and answers between two ends that are objects here. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { makeChannel, type Wire } from "../../../src/workers/Channel.ts"
import { toPrimary, toWorker } from "../../../src/workers/protocol.ts"

const makePair = Effect.gen(function* () {
  const listeners = { a: new Set<(message: unknown) => void>(), b: new Set<(message: unknown) => void>() }
  let lost = false
  const wire = (from: "a" | "b", to: "a" | "b"): Wire => ({
    send: (message) => {
      if (!lost) for (const listener of listeners[to]) listener(structuredClone(message))
    },
    listen: (listener) => {
      listeners[from].add(listener)
      return () => void listeners[from].delete(listener)
    }
  })
  const [a, b] = [yield* makeChannel(wire("a", "b")), yield* makeChannel(wire("b", "a"))]
  const inject = (message: unknown) => listeners.a.forEach((listener) => listener(message))
  return { a, b, inject, lose: () => void (lost = true) }
})

it.effect("when one end asks, then it gets the answer of the other, and several at once get their own", () =>
  Effect.gen(function* () {
    const { a, b } = yield* makePair
    b.answer(toPrimary.waitMs, ({ keyId }) => Effect.succeed(Number(keyId)))
    const asked = [1, 2, 3].map((n) => a.ask(toPrimary.waitMs, { keyId: String(n), tenantId: "t" }))
    assert.deepStrictEqual(yield* Effect.all(asked, { concurrency: "unbounded" }), [1, 2, 3])
  })
)

it.effect("when nobody answers, the answer is nonsense, or the handler fails, then it is ChannelDown", () =>
  Effect.gen(function* () {
    const { a, b, inject, lose } = yield* makePair
    const fails = (question: Effect.Effect<unknown, { readonly reason: string }>) =>
      Effect.map(Effect.flip(question), ({ reason }) => reason)
    assert.strictEqual(yield* fails(a.ask(toPrimary.circuitState, undefined)), "refused")
    b.answer(toPrimary.waitMs, () => Effect.fail("broken"))
    assert.strictEqual(yield* fails(a.ask(toPrimary.waitMs, { keyId: "k", tenantId: "t" })), "refused")
    for (const message of [undefined, 1, {}, { tollgate: "answer", id: 999, ok: true, output: 1 }])
      inject(message)
    b.answer(toWorker.snapshot, () => Effect.succeed([]))
    const other = { ...toPrimary.exposition, name: toWorker.snapshot.name }
    assert.match(yield* fails(a.ask(other, undefined)), /nonsense/)
    lose()
    const waiting = yield* Effect.forkChild(fails(a.ask(toPrimary.exposition, undefined)), {
      startImmediately: true
    })
    yield* TestClock.adjust("2 seconds")
    assert.match(yield* Fiber.join(waiting), /no answer/)
  })
)
