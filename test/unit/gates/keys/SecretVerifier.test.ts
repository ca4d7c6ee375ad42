import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { mintKey, prefixOf } from "../../../../src/domain/Key.ts"
import {
  hashSecret,
  makeSecretVerifier,
  type SecretVerifierOptions
} from "../../../../src/gates/keys/SecretVerifier.ts"
import { testWith } from "../../../support/testWith.ts"

const secret = mintKey("tg_")
const prefix = prefixOf(secret)
/** Another secret with the same prefix. */
const guess = (key = secret) => prefixOf(key) + mintKey("tg_").slice(-32)

const settle = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))

/** A verifier whose verifies wait to be told the outcome, in the order of `calls`. */
const makeWorld = Effect.fnUntraced(function* (options: SecretVerifierOptions = {}) {
  const calls: Array<{ readonly hash: string; readonly secret: string }> = []
  const running = new Map<string, (matches: boolean) => void>()
  const check = yield* makeSecretVerifier({
    verify: (hash, asked) => {
      calls.push({ hash, secret: asked })
      return Effect.callback<boolean>(
        (resume) => void running.set(asked, (matches) => resume(Effect.succeed(matches)))
      )
    },
    concurrency: 1,
    ...options
  })
  const ask = (key: string, hash?: string, from?: string) =>
    Effect.forkChild(Effect.result(check.matches(key, prefixOf(key), hash, from)), { startImmediately: true })
  /** Answers the verifies that run, or that of one key. */
  const answer = (matches: boolean, key?: string) =>
    Effect.suspend(() => {
      // What is answered starts others, and they are not meant.
      const asked = [...running].filter(([one]) => key === undefined || key === one)
      for (const [one, resume] of asked) {
        running.delete(one)
        resume(matches)
      }
      return settle
    })
  /** Asks, and the verify says `matches`. */
  const verified = Effect.fnUntraced(function* (matches: boolean, key = secret, hash = "hash") {
    const asking = yield* ask(key, hash)
    yield* settle
    yield* answer(matches)
    return yield* told(asking)
  })
  return { answer, ask, calls, check, running, verified }
})

const told = (asking: Fiber.Fiber<Result.Result<boolean, { readonly _tag: string }>>) =>
  Effect.map(
    Fiber.join(asking),
    Result.match({ onFailure: ({ _tag }): string | boolean => _tag, onSuccess: (matches) => matches })
  )

const times = (count: number) => Array.from({ length: count })

const test = testWith(it.effect)

test("when a secret is compared with its real argon2id hash, then it matches, another one does not, and neither result is used for the other", function* () {
  const check = yield* makeSecretVerifier({})
  const hash = yield* Effect.promise(() => hashSecret(secret))
  assert.match(hash, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
  const wrong = guess()
  const answers = yield* Effect.forEach([secret, wrong, secret, wrong], (one) =>
    check.matches(one, prefix, hash)
  )
  assert.deepStrictEqual(answers, [true, false, true, false])
  assert.isFalse(yield* check.matches(secret, prefix, yield* Effect.promise(() => hashSecret(wrong))))
  assert.isFalse(yield* check.matches(secret, prefix, undefined))
})

test("when a match or a mismatch is remembered, then it counts for its own hash only", function* () {
  const { calls, check, verified } = yield* makeWorld()
  const hashes = { first: true, second: false, third: true }
  for (const [hash, matches] of Object.entries(hashes)) {
    assert.strictEqual(yield* verified(matches, secret, hash), matches)
    assert.strictEqual(yield* check.matches(secret, prefix, hash), matches)
  }
  assert.deepStrictEqual(
    calls.map(({ hash }) => hash),
    Object.keys(hashes)
  )
})

test("when a match was last asked for ten minutes ago, then it is forgotten", function* () {
  const { calls, check, verified } = yield* makeWorld()
  assert.isTrue(yield* verified(true))
  for (let n = 0; n < 5; n++) {
    yield* TestClock.adjust("9 minutes")
    assert.isTrue(yield* check.matches(secret, prefix, "hash"))
  }
  assert.lengthOf(calls, 1)
  yield* TestClock.adjust("11 minutes")
  assert.isTrue(yield* verified(true))
  assert.lengthOf(calls, 2)
})

test("when a mismatch was found a minute ago, then it is forgotten", function* () {
  const { calls, verified } = yield* makeWorld()
  for (const expected of [1, 2]) {
    assert.isFalse(yield* verified(false))
    assert.lengthOf(calls, expected)
    yield* TestClock.adjust("60 seconds")
  }
})

test("when one prefix is asked for many times at once, then two are verified at a time, others are refused, and other prefixes are served", function* () {
  const { answer, ask } = yield* makeWorld()
  const flood = yield* Effect.forEach(times(10), () => ask(guess(), "hash"))
  const victim = yield* ask(mintKey("tg_"), "other")
  for (let n = 0; n < 3; n += 1) {
    yield* settle
    yield* answer(n === 2)
  }
  assert.isTrue(yield* told(victim))
  const refused = (yield* Effect.forEach(flood, Fiber.join)).filter(Result.isFailure)
  assert.lengthOf(refused, 8)
  for (const { failure } of refused) assert.deepInclude(failure, { _tag: "Unavailable", retryAfterS: 1 })
})

test("when many wait, then the queue has a bound in length and in time", function* () {
  const { ask, calls } = yield* makeWorld({ places: 4, maxWaitMs: 2000 })
  const asking = yield* Effect.forEach(times(6), (_, n) => ask(mintKey("tg_"), "hash", `address ${n}`))
  yield* settle
  assert.lengthOf(
    asking.filter((fiber) => fiber.pollUnsafe() !== undefined),
    2
  )
  yield* TestClock.adjust("2001 millis")
  assert.deepStrictEqual(new Set(yield* Effect.forEach(asking, told)), new Set(["Unavailable"]))
  assert.lengthOf(calls, 1)
})

test("when many ask with one secret, then they share one verification", function* () {
  const { answer, ask, calls } = yield* makeWorld()
  const asking = yield* Effect.forEach(times(50), () => ask(secret, "hash"))
  yield* settle
  yield* answer(true)
  assert.deepStrictEqual(new Set(yield* Effect.forEach(asking, told)), new Set([true]))
  assert.lengthOf(calls, 1)
})

test("when a prefix is unknown, then the secret is compared with a dummy hash, and is refused even on a match", function* () {
  const { answer, ask, calls } = yield* makeWorld()
  const asking = yield* ask(secret)
  yield* settle
  yield* answer(true)
  assert.isFalse(yield* told(asking))
  assert.isTrue(calls[0]?.hash.startsWith("$argon2id$v=19$m=19456,t=2,p=1$"))
})

test("when a stored hash asks for too much memory or time, then it is not computed", function* () {
  const check = yield* makeSecretVerifier({})
  const greedy =
    "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
  assert.strictEqual((yield* Effect.flip(check.matches(secret, prefix, greedy)))._tag, "Unavailable")
})

test("when prefixes are guessed at, then one guess is verified at a time, for half of the time, and others beside it", function* () {
  const { answer, ask, running, verified } = yield* makeWorld()
  const prefixes = [mintKey("tg_"), mintKey("tg_")]
  for (const key of prefixes) assert.isFalse(yield* verified(false, key))
  const guesses = prefixes.map(guess)
  const good = [mintKey("tg_"), mintKey("tg_")]
  yield* Effect.forEach(guesses, (key) => ask(key, "hash"))
  assert.deepStrictEqual([...running.keys()], guesses.slice(0, 1), "one guess at a time")
  const asking = yield* Effect.forEach(good, (key) => ask(key, "hash"))
  assert.deepStrictEqual([...running.keys()], [guesses[0], good[0]], "beside one good key")
  yield* answer(true, good[0])
  assert.deepStrictEqual([...running.keys()], [guesses[0], good[1]])
  yield* answer(true, good[1])
  assert.deepStrictEqual(yield* Effect.forEach(asking, told), [true, true])
  yield* TestClock.adjust("10 millis")
  yield* answer(false, guesses[0])
  yield* TestClock.adjust("9 millis")
  assert.deepStrictEqual([...running.keys()], [], "as long as the last one took")
  yield* TestClock.adjust("1 millis")
  assert.deepStrictEqual([...running.keys()], guesses.slice(1))
})

/** What ten tails at once get told, while a worker is busy with something else. */
const toldInAFlood = Effect.fnUntraced(function* (hash: string | undefined) {
  const { answer, ask } = yield* makeWorld()
  const busy = yield* ask(mintKey("xx_"), "hash")
  const asking = yield* Effect.forEach(times(10), () => ask(guess(), hash))
  const atOnce = asking.filter((fiber) => fiber.pollUnsafe() !== undefined).length
  for (let n = 0; n < 3; n += 1) {
    yield* settle
    yield* answer(false)
  }
  yield* settle
  yield* TestClock.adjust("1 second")
  yield* Fiber.join(busy)
  return { atOnce, told: (yield* Effect.forEach(asking, told)).map(String).sort() }
})

test("when a flood tries a prefix, then its answers are the same whether or not there is such a key (A06)", function* () {
  const known = yield* toldInAFlood("hash")
  assert.deepStrictEqual(known.atOnce, 8)
  assert.deepStrictEqual(yield* toldInAFlood(undefined), known)
})

test("when an unknown prefix is asked for, then it waits for its turn the first time and not the next (A06)", function* () {
  const { answer, ask, calls } = yield* makeWorld()
  const others = yield* Effect.forEach(times(20), () => ask(mintKey("tg_"), "hash"))
  yield* settle
  const asking = yield* ask(secret)
  // A verify costs 8 ms until the first is measured: twenty are before it, and chance takes a fifth off at most.
  yield* TestClock.adjust("100 millis")
  assert.isUndefined(asking.pollUnsafe())
  yield* TestClock.adjust("200 millis")
  assert.isFalse(yield* told(asking))
  assert.isDefined((yield* ask(secret)).pollUnsafe())
  assert.lengthOf(calls, 1)
  for (let n = 0; n < 20; n += 1) yield* Effect.andThen(answer(true), settle)
  yield* Effect.forEach(others, Fiber.join)
})

/** A flood at one prefix gets two places, one at many prefixes half of all. */
for (const [what, guessed, key, places] of [
  ["a key that nobody guessed at before", false, () => guess(), 2],
  ["a key that was guessed at before", true, () => guess(), 2],
  ["all keys", false, () => mintKey("tg_"), 5]
] as const) {
  test(`when one address floods ${what}, then it has some places, and an owner at another address waits for two of it at most`, function* () {
    const { answer, ask, calls, verified } = yield* makeWorld({ places: 10 })
    if (guessed) assert.isFalse(yield* verified(false, guess()))
    const flood = yield* Effect.forEach(times(40), () => ask(key(), "hash", "flood"))
    const owner = yield* ask(secret, "hash", "elsewhere")
    yield* settle
    assert.lengthOf(
      flood.filter((fiber) => fiber.pollUnsafe() === undefined),
      places
    )
    // The one that is in work, and one more.
    for (const _ of times(2)) {
      yield* answer(false)
      yield* TestClock.adjust("1 millis")
    }
    assert.strictEqual(calls.at(-1)?.secret, secret)
    yield* answer(true)
    assert.isTrue(yield* told(owner))
    yield* Fiber.interruptAll(flood)
  })
}
