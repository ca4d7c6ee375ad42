import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { mintKey, prefixOf } from "../../../../src/domain/Key.ts"
import { hashSecret, makeSecretVerifier } from "../../../../src/gates/keys/SecretVerifier.ts"
import { testWith } from "../../../support/testWith.ts"

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
      return Effect.callback<boolean>(
        (resume) => void pending.push((matches) => resume(Effect.succeed(matches)))
      )
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

const test = testWith(it.effect)

test("when a secret is compared with its real argon2id hash, then it matches, another one does not, and neither result is used for the other", function* () {
  const check = yield* makeSecretVerifier({})
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

test("when a match or a mismatch is remembered, then it counts for its own hash only", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
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

test("when a match was last asked for ten minutes ago, then it is forgotten", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
  const verified = Effect.gen(function* () {
    const asking = yield* Effect.forkChild(check.matches(secret, prefix, "hash"), {
      startImmediately: true
    })
    yield* settle
    yield* answer(true)
    return yield* Fiber.join(asking)
  })
  assert.isTrue(yield* verified)
  for (let n = 0; n < 5; n++) {
    yield* TestClock.adjust("9 minutes")
    assert.isTrue(yield* check.matches(secret, prefix, "hash"))
  }
  assert.strictEqual(calls.length, 1)
  yield* TestClock.adjust("11 minutes")
  assert.isTrue(yield* verified)
  assert.strictEqual(calls.length, 2)
})

test("when a mismatch was found a minute ago, then it is forgotten", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
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

test("when one prefix is asked for many times at once, then two are verified at a time, others are refused, and other prefixes are served", function* () {
  const { answer, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
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

test("when many wait, then the queue has a bound in length and in time", function* () {
  const { calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0, queue: 3, maxWaitMs: 2000 })
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

test("when many ask with one secret, then they share one verification", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
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

test("when a prefix is unknown, then the secret is compared with a dummy hash, and is refused even on a match", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
  const asking = yield* Effect.forkChild(check.matches(secret, prefix, undefined), {
    startImmediately: true
  })
  yield* settle
  yield* answer(true)
  assert.isFalse(yield* Fiber.join(asking))
  assert.isTrue(calls[0]?.hash.startsWith("$argon2id$v=19$m=19456,t=2,p=1$"))
})

test("when a stored hash asks for too much memory or time, then it is not computed", function* () {
  const check = yield* makeSecretVerifier({})
  const greedy =
    "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
  assert.strictEqual((yield* Effect.flip(check.matches(secret, prefix, greedy)))._tag, "Unavailable")
})

test("when a good key is used for the first time, then it is verified before those whose prefix is guessed at", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
  const ask = (key: string) =>
    Effect.forkChild(check.matches(key, prefixOf(key), "hash"), { startImmediately: true })
  const guessed = Array.from({ length: 5 }, () => mintKey("tg_"))
  for (const key of guessed) {
    const asking = yield* ask(key)
    yield* settle
    yield* answer(false)
    assert.isFalse(yield* Fiber.join(asking))
  }
  const flood = yield* Effect.forEach(guessed, (key) => ask(prefixOf(key) + mintKey("tg_").slice(-32)))
  const [first, second] = [mintKey("tg_"), mintKey("tg_")]
  const good = [yield* ask(first), yield* ask(second)]
  for (let n = 0; n < 3; n += 1) {
    yield* settle
    yield* answer(n > 0)
  }
  assert.deepStrictEqual(yield* Effect.forEach(good, Fiber.join), [true, true])
  assert.deepStrictEqual(
    calls.slice(6, 8).map(({ secret }) => secret),
    [first, second]
  )
  yield* Fiber.interruptAll(flood)
})

test("when prefixes are guessed at, then the reserve worker stays free for the others", function* () {
  const running = new Map<string, (matches: boolean) => void>()
  const check = yield* makeSecretVerifier({
    verify: (_, secret) =>
      Effect.callback((resume) => void running.set(secret, (matches) => resume(Effect.succeed(matches)))),
    concurrency: 1,
    reserve: 1
  })
  const answer = (key: string, matches: boolean) =>
    Effect.suspend(() => {
      running.get(key)?.(matches)
      running.delete(key)
      return settle
    })
  const ask = (key: string) =>
    Effect.forkChild(check.matches(key, prefixOf(key), "hash"), { startImmediately: true })
  const prefixes = [mintKey("tg_"), mintKey("tg_")]
  for (const key of prefixes) {
    yield* ask(key)
    yield* answer(key, false)
  }
  const guesses = prefixes.map((key) => prefixOf(key) + mintKey("tg_").slice(-32))
  const good = [mintKey("tg_"), mintKey("tg_")]
  yield* Effect.forEach(guesses, ask)
  assert.deepStrictEqual([...running.keys()], guesses.slice(0, 1), "one guess at a time")
  const asking = yield* Effect.forEach(good, ask)
  assert.deepStrictEqual([...running.keys()], [guesses[0], good[0]], "beside one good key")
  yield* answer(good[0] ?? "", true)
  assert.deepStrictEqual([...running.keys()], [guesses[0], good[1]])
  yield* answer(good[1] ?? "", true)
  assert.deepStrictEqual([...running.keys()], guesses.slice(0, 1), "and then no guess more")
  assert.deepStrictEqual(yield* Effect.forEach(asking, Fiber.join), [true, true])
})

/** What ten tails at once get told, while a worker is busy with something else. */
const toldInAFlood = (hash: string | undefined) =>
  Effect.gen(function* () {
    const { answer, verify } = makeVerify()
    const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
    const busy = yield* Effect.forkChild(check.matches(mintKey("xx_"), "xx_", "hash"), {
      startImmediately: true
    })
    const asking = yield* Effect.forEach(Array.from({ length: 10 }), () =>
      Effect.forkChild(Effect.result(check.matches(prefix + mintKey("tg_").slice(-32), prefix, hash)), {
        startImmediately: true
      })
    )
    const atOnce = asking.filter((fiber) => fiber.pollUnsafe() !== undefined).length
    for (let n = 0; n < 3; n += 1) {
      yield* settle
      yield* answer(false)
    }
    yield* settle
    yield* TestClock.adjust("1 second")
    yield* Fiber.join(busy)
    const told = (yield* Effect.forEach(asking, Fiber.join)).map((result) =>
      Result.isSuccess(result) ? String(result.success) : result.failure._tag
    )
    return { atOnce, told: told.sort() }
  })

test("when a flood tries a prefix, then its answers are the same whether or not there is such a key (A06)", function* () {
  const known = yield* toldInAFlood("hash")
  assert.deepStrictEqual(known.atOnce, 8)
  assert.deepStrictEqual(yield* toldInAFlood(undefined), known)
})

test("when an unknown prefix is asked for, then it waits for its turn the first time and not the next (A06)", function* () {
  const { answer, calls, verify } = makeVerify()
  const check = yield* makeSecretVerifier({ verify, concurrency: 1, reserve: 0 })
  const others = yield* Effect.forEach(Array.from({ length: 20 }), () => {
    const other = mintKey("tg_")
    return Effect.forkChild(check.matches(other, prefixOf(other), "hash"), { startImmediately: true })
  })
  yield* settle
  const asking = yield* Effect.forkChild(check.matches(secret, prefix, undefined), {
    startImmediately: true
  })
  // A verify costs 8 ms until the first is measured: twenty are before it, and chance takes a fifth off at most.
  yield* TestClock.adjust("100 millis")
  assert.isUndefined(asking.pollUnsafe())
  yield* TestClock.adjust("200 millis")
  assert.isFalse(yield* Fiber.join(asking))
  const again = yield* Effect.forkChild(check.matches(secret, prefix, undefined), {
    startImmediately: true
  })
  assert.isDefined(again.pollUnsafe())
  assert.strictEqual(calls.length, 1)
  for (let n = 0; n < 20; n += 1) {
    yield* answer(true)
    yield* settle
  }
  yield* Effect.forEach(others, Fiber.join)
})

test("when a flood guesses at a prefix, then its owner is verified at the second try", function* () {
  const verified: Array<string> = []
  const hash = "hash"
  const check = yield* makeSecretVerifier({
    verify: (_, asked) => {
      verified.push(asked)
      return Effect.promise(() => Promise.resolve(asked === secret))
    },
    concurrency: 1,
    reserve: 1
  })
  const guess = () =>
    Effect.forkChild(Effect.result(check.matches(prefix + mintKey("tg_").slice(-32), prefix, hash)), {
      startImmediately: true
    })
  yield* guess()
  yield* settle
  let tries = 0
  let known = false
  while (!known && tries < 5) {
    tries += 1
    for (let n = 0; n < 50; n += 1) yield* guess()
    const owner = yield* Effect.forkChild(Effect.result(check.matches(secret, prefix, hash)), {
      startImmediately: true
    })
    for (let n = 0; n < 50; n += 1) yield* guess()
    yield* settle
    // One suspect at a time and no more: one turn of the worker, a tenth of what is asked meanwhile.
    yield* TestClock.adjust("20 millis")
    yield* settle
    const answer = owner.pollUnsafe()
    known = answer !== undefined && answer._tag === "Success" && Result.isSuccess(answer.value)
  }
  assert.isTrue(known, `not verified after ${tries} tries`)
  assert.isAtMost(tries, 2)
  assert.isBelow(verified.length, 20, "and the flood was not verified instead")
})
