/** Calls of one turn of the event loop, which share commands. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { alone, command, left } from "../support/PrivateMeter.ts"
import { ask, claimsOf, granted } from "./Meter.ts"
import { testWith } from "../support/testWith.ts"

/** How many scripts Redis has run. */
const scriptsRun = Effect.map(command("INFO", "commandstats"), (text) =>
  Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(text))?.[1] ?? 0)
)

const test = testWith(it.live, alone())

test("when requests of many tenants come and end in one turn, then one command has up to 24 of them, and each gets its own answer", function* () {
  const meter = yield* Meter
  const claims = Array.from({ length: 60 }, (_, i) =>
    claimsOf({ rpm: 1000 + (i % 3) }, { group: `g${i % 7}`, key: `k${i % 11}` })
  )
  // Loads the scripts.
  yield* meter.settle(granted(yield* meter.reserve(claimsOf({}), ask("first"))).reservation, 0)
  const before = yield* scriptsRun
  const verdicts = yield* Effect.forEach(claims, (one, i) => meter.reserve(one, ask(`r${i}`, i + 1)), {
    concurrency: "unbounded"
  })
  assert.strictEqual((yield* scriptsRun) - before, 3)
  const reservations = verdicts.map((verdict) => granted(verdict).reservation)
  assert.deepStrictEqual(
    reservations.map(({ held, id }) => [id, held]),
    claims.map((_, i) => [`r${i}`, i + 1])
  )
  yield* Effect.forEach(reservations, (one) => meter.settle(one, 5), { concurrency: "unbounded" })
  assert.strictEqual((yield* scriptsRun) - before, 6)
  for (const one of claims) {
    const same = claims.filter(({ account }) => JSON.stringify(account) === JSON.stringify(one.account))
    const { requests, tokens } = yield* left(one)
    assert.deepStrictEqual(
      [requests.remaining, tokens.remaining],
      [one.limits.rpm - same.length, one.limits.tpm - same.length * 5]
    )
  }
})

test("when an account of a turn lacks a counter that the others have, then it alone has to be loaded", function* () {
  const meter = yield* Meter
  const accounts = ["a", "b", "c"].map((key) => claimsOf({ budgets: { total: 100 } }, { group: "g", key }))
  for (const { account } of accounts.filter((_, i) => i !== 1))
    yield* meter.load(account, [{ counter: "total", tokens: 0 }])
  // A connection that is new asks first whether the server is suitable.
  yield* meter.ping
  const before = yield* scriptsRun
  const verdicts = yield* Effect.forEach(
    accounts,
    (claims) => meter.reserve(claims, ask(claims.account.key, 10)),
    { concurrency: "unbounded" }
  )
  assert.deepStrictEqual(
    verdicts.map(({ _tag }) => _tag),
    ["Reserved", "Missing", "Reserved"]
  )
  assert.strictEqual((yield* scriptsRun) - before, 1)
})

test("when what Redis has of one account cannot be read, then only the requests of that account fail", function* () {
  const meter = yield* Meter
  const accounts = ["a", "broken", "b"].map((key) => claimsOf({}, { group: "g", key }))
  for (const claims of accounts) yield* meter.reserve(claims, ask(`first ${claims.account.key}`))
  const names = yield* command("KEYS", "*broken:account")
  const [name] = Array.isArray(names) ? names : []
  yield* command("SET", String(name), "no hash")
  const exits = yield* Effect.forEach(
    accounts,
    (claims) => Effect.exit(meter.reserve(claims, ask(claims.account.key))),
    { concurrency: "unbounded" }
  )
  assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, false, true])
})

test("when a request is asked for twice in one turn, then it counts once", function* () {
  const meter = yield* Meter
  const claims = claimsOf({ rpm: 9, concurrent: 2, tpm: 100 })
  const twice = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.all([effect, effect], { concurrency: "unbounded" })
  const [one, other] = yield* twice(meter.reserve(claims, ask("a", 40)))
  const { reservation } = granted(one)
  assert.deepStrictEqual(granted(other).reservation, reservation)
  const [ended, again] = yield* twice(meter.settle(reservation, 30))
  assert.deepStrictEqual([ended.requests.remaining, ended.tokens.remaining], [8, 70])
  assert.deepStrictEqual(again.tokens.remaining, ended.tokens.remaining)
  assert.strictEqual((yield* left(claims)).tokens.remaining, 70)
})
