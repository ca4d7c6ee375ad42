/** What every Meter owes to clients that come steadily: the whole limit, never more in 60 seconds, and when it is left again. */
import { assert, describe } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import { Meter, Reserved } from "../../src/gates/meter/Meter.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { ask, atNoon, claimsOf, left, noon, peek, reserve, take, type Wipe } from "./Meter.ts"

export const windows = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: a steady client`, () => {
    /** Asks at each of `times` (ms) and returns when it was admitted. */
    const admittedAt = Effect.fnUntraced(function* (
      claims: Claims,
      times: ReadonlyArray<number>,
      tokens = 0
    ) {
      const meter = yield* Meter
      const admitted: Array<number> = []
      for (const [i, time] of times.entries()) {
        yield* TestClock.setTime(noon + time)
        const verdict = yield* reserve(claims, ask(`s${claims.account.key}${i}`, tokens, false))
        if (!(verdict instanceof Reserved)) continue
        admitted.push(time)
        yield* meter.settle(verdict.reservation, verdict.reservation.held)
      }
      return admitted
    })
    const maxInMinute = (times: ReadonlyArray<number>): number =>
      Math.max(...times.map((from) => times.filter((time) => time >= from && time < from + 60_000).length))

    for (const [rpm, everyMs, leastShare] of [
      [60, 1000, 1],
      [10, 6000, 1],
      [60, 700, 0.98],
      [180, 333, 0.98],
      [240, 170, 0.98]
    ] as const) {
      test(`when a client with ${rpm} requests a minute asks every ${everyMs} ms, then it gets ${leastShare} of them, and in no 60 s more`, function* () {
        const minutes = 6
        const times = Array.from(
          { length: Math.floor((minutes * 60_000) / everyMs) },
          (_, i) => 137 + i * everyMs
        )
        const admitted = yield* admittedAt(claimsOf({ rpm }), times)
        assert.isAtMost(maxInMinute(admitted), rpm)
        assert.isAtLeast(admitted.length, Math.floor(leastShare * rpm * minutes))
      })
    }
  })

  describe(`${name}: resets`, () => {
    const resets = (claims: Claims) => Effect.map(peek(claims), (headroom) => headroom.resets)

    test("when nothing is used, then requests and tokens are reset now, and budgets at the end of their period", function* () {
      assert.deepStrictEqual(yield* resets(claimsOf({})), {
        requestsMs: 0,
        tokensMs: 0,
        budgetsS: { day: 43_200, week: 43_200 + 86_400, month: 43_200 + 9 * 86_400, total: 86_400 }
      })
    })

    test("when requests and tokens are used, then all are left again when the reset says so, and not before", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ rpm: 9, tpm: 90 })
      yield* meter.settle(yield* take(claims, ask("a", 10)), 10)
      yield* TestClock.adjust("20 seconds")
      yield* meter.settle(yield* take(claims, ask("b", 10)), 0)
      const { requestsMs, tokensMs } = yield* resets(claims)
      assert.isBelow(tokensMs, requestsMs)
      yield* TestClock.adjust(tokensMs - 1)
      assert.strictEqual((yield* left(claims)).tokens.remaining, 80)
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* left(claims)).tokens.remaining, 90)
      yield* TestClock.adjust(requestsMs - tokensMs - 1)
      assert.strictEqual((yield* left(claims)).requests.remaining, 8)
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* left(claims)).requests.remaining, 9)
    })

    test("when tokens are held, then they count as used now", function* () {
      const claims = claimsOf({})
      yield* take(claims, ask("a", 10))
      yield* TestClock.adjust("10 seconds")
      assert.isAtLeast((yield* resets(claims)).tokensMs, 60_000)
    })
  })
}
