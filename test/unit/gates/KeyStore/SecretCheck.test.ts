import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { mintKey, prefixOf } from "../../../../src/domain/Key.ts"
import { hashSecret, makeSecretCheck } from "../../../../src/gates/KeyStore/SecretCheck.ts"

const secret = mintKey("tg_")
const prefix = prefixOf(secret)

/** A verify that waits to be told the outcome, and counts how often it was asked. */
const makeVerify = () => {
  const calls: Array<{ readonly hash: string; readonly secret: string }> = []
  const pending: Array<(matches: boolean) => void> = []
  return {
    calls,
    verify: (hash: string, secret: string) => {
      calls.push({ hash, secret })
      return new Promise<boolean>((resolve) => pending.push(resolve))
    },
    /** Answers every verify under way. */
    answer: (matches: boolean) =>
      Effect.promise(async () => {
        for (const resolve of pending.splice(0)) resolve(matches)
        await new Promise((resolve) => setImmediate(resolve))
      })
  }
}

const settle = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))

it.effect("real argon2id: the secret matches, another tail does not, and neither covers the other", () =>
  Effect.gen(function* () {
    const check = yield* makeSecretCheck({})
    const hash = yield* Effect.promise(() => hashSecret(secret))
    assert.match(hash, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
    const wrong = prefix + mintKey("tg_").slice(-32)
    const answers = yield* Effect.forEach([secret, wrong, secret, wrong], (one) =>
      check.matches(one, prefix, hash)
    )
    assert.deepStrictEqual(answers, [true, false, true, false])
    assert.isFalse(yield* check.matches(secret, prefix, yield* Effect.promise(() => hashSecret(wrong))))
    assert.isFalse(yield* check.matches(secret, prefix, undefined))
  })
)

it.effect("a match and a mismatch are remembered for the hash they were found with, and for no other", () =>
  Effect.gen(function* () {
    const { answer, calls, verify } = makeVerify()
    const check = yield* makeSecretCheck({ verify, concurrency: 1 })
    const ask = (hash: string) =>
      Effect.forkChild(check.matches(secret, prefix, hash), { startImmediately: true })
    for (const [hash, matches] of [
      ["first", true],
      ["second", false],
      ["third", true]
    ] as const) {
      const asking = yield* ask(hash)
      yield* settle
      yield* answer(matches)
      assert.strictEqual(yield* Fiber.join(asking), matches)
      assert.strictEqual(yield* check.matches(secret, prefix, hash), matches)
    }
    assert.deepStrictEqual(
      calls.map(({ hash }) => hash),
      ["first", "second", "third"]
    )
  })
)

it.effect("a mismatch is forgotten after less than a minute", () =>
  Effect.gen(function* () {
    const { answer, calls, verify } = makeVerify()
    const check = yield* makeSecretCheck({ verify, concurrency: 1 })
    for (const expected of [1, 2]) {
      const asking = yield* Effect.forkChild(check.matches(secret, prefix, "hash"), {
        startImmediately: true
      })
      yield* settle
      yield* answer(false)
      assert.isFalse(yield* Fiber.join(asking))
      assert.strictEqual(calls.length, expected)
      yield* TestClock.adjust("60 seconds")
    }
  })
)

it.effect(
  "one prefix has at most two verifies at a time; the rest are told to come back, others are served",
  () =>
    Effect.gen(function* () {
      const { answer, verify } = makeVerify()
      const check = yield* makeSecretCheck({ verify, concurrency: 1 })
      const flood = yield* Effect.forEach(Array.from({ length: 10 }), () =>
        Effect.forkChild(Effect.result(check.matches(prefix + mintKey("tg_").slice(-32), prefix, "hash")), {
          startImmediately: true
        })
      )
      const other = mintKey("tg_")
      const victim = yield* Effect.forkChild(check.matches(other, prefixOf(other), "other"), {
        startImmediately: true
      })
      for (let n = 0; n < 3; n += 1) {
        yield* settle
        yield* answer(n === 2)
      }
      assert.isTrue(yield* Fiber.join(victim))
      const refused = (yield* Effect.forEach(flood, Fiber.join)).filter(Result.isFailure)
      assert.strictEqual(refused.length, 8)
      for (const { failure } of refused) {
        assert.strictEqual(failure._tag, "Unavailable")
        assert.strictEqual(failure.retryAfterS, 1)
      }
    })
)

it.effect("the queue is bounded, and nobody waits in it longer than the bound", () =>
  Effect.gen(function* () {
    const { calls, verify } = makeVerify()
    const check = yield* makeSecretCheck({ verify, concurrency: 1, queue: 3, maxWaitMs: 2000 })
    const asking = yield* Effect.forEach(Array.from({ length: 6 }), () => {
      const secret = mintKey("tg_")
      return Effect.forkChild(Effect.result(check.matches(secret, prefixOf(secret), "hash")), {
        startImmediately: true
      })
    })
    yield* settle
    assert.strictEqual(asking.filter((fiber) => fiber.pollUnsafe() !== undefined).length, 2)
    yield* TestClock.adjust("2001 millis")
    const answers = yield* Effect.forEach(asking, Fiber.join)
    assert.isTrue(answers.every(Result.isFailure))
    assert.strictEqual(calls.length, 1)
  })
)

it.effect("many askers with one secret share one verify", () =>
  Effect.gen(function* () {
    const { answer, calls, verify } = makeVerify()
    const check = yield* makeSecretCheck({ verify, concurrency: 1 })
    const asking = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 50 }, () => check.matches(secret, prefix, "hash")),
        { concurrency: "unbounded" }
      ),
      { startImmediately: true }
    )
    yield* settle
    yield* answer(true)
    assert.isTrue((yield* Fiber.join(asking)).every(Boolean))
    assert.strictEqual(calls.length, 1)
  })
)

it.effect("an unknown prefix is verified against a hash of nothing, and refused even if that matched", () =>
  Effect.gen(function* () {
    const { answer, calls, verify } = makeVerify()
    const check = yield* makeSecretCheck({ verify, concurrency: 1 })
    const asking = yield* Effect.forkChild(check.matches(secret, prefix, undefined), {
      startImmediately: true
    })
    yield* settle
    yield* answer(true)
    assert.isFalse(yield* Fiber.join(asking))
    assert.isTrue(calls[0]?.hash.startsWith("$argon2id$v=19$m=19456,t=2,p=1$"))
  })
)

it.effect("a stored hash that asks for the whole machine is not worked on", () =>
  Effect.gen(function* () {
    const check = yield* makeSecretCheck({})
    const greedy =
      "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    assert.strictEqual((yield* Effect.flip(check.matches(secret, prefix, greedy)))._tag, "Unavailable")
  })
)
