/** What every ledger owes: what was spent and what is held, in the day, the month and for ever. */
import { assert } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import type { Caller } from "../../src/domain/Caller.ts"
import { Audit } from "../../src/audit/Audit.ts"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { callerOf, endOf, intentOf, noon, usageOf } from "../support/records.ts"
import { Written } from "./Audit.ts"
import { queuedFor } from "../support/permits.ts"
import { inWorld } from "../support/testWith.ts"

const day = 86_400_000

const accountOf = ({ accountId, tenantId }: Caller) => ({ group: tenantId, key: accountId })

export const suite = (name: string, world: Layer.Layer<Audit | Ledger | Written, unknown>) =>
  inWorld(world)(`Ledger: ${name}`, (test) => {
    const closed = Effect.fnUntraced(function* (
      caller: ReturnType<typeof callerOf>,
      admittedAt: number,
      tokens: number,
      model = "m:latest"
    ) {
      const audit = yield* Audit
      const intent = { ...intentOf({ caller, admittedAt, arrivedAt: admittedAt }), model }
      yield* audit.open(queuedFor(intent))
      yield* audit.close(endOf(intent, usageOf(tokens, 0)))
    })

    test("when several keys have one account, then it has spent what all of them have, and so has their tenant", function* () {
      const ledger = yield* Ledger
      const first = callerOf()
      const second = { ...callerOf(undefined, first.tenantId), accountId: first.keyId }
      const stranger = callerOf(undefined, first.tenantId)
      yield* (yield* Written).addKey(second)
      yield* (yield* Written).addKey(stranger)
      yield* closed(first, noon, 1)
      yield* closed(second, noon, 10)
      yield* closed(second, noon - day, 100)
      yield* closed(stranger, noon, 1000)
      yield* closed(callerOf(), noon, 5_000_000)
      // A request that is open counts with what it holds.
      const open = intentOf({ caller: second, admittedAt: noon, arrivedAt: noon, held: 20_000 })
      yield* (yield* Audit).open(queuedFor(open))
      assert.deepStrictEqual(yield* ledger.spent(accountOf(first), noon, "total"), {
        day: 20_011,
        week: 20_111,
        month: 20_111,
        total: 20_111
      })
      assert.deepStrictEqual(
        yield* ledger.spent(accountOf(second), noon, "total"),
        yield* ledger.spent(accountOf(first), noon, "total")
      )
      const tenant = yield* ledger.spent({ group: first.tenantId }, noon, "total")
      assert.deepStrictEqual(tenant, { day: 21_011, week: 21_111, month: 21_111, total: 21_111 })
      const today = yield* ledger.spent({ group: first.tenantId }, noon, "day")
      assert.strictEqual(today.day, 21_011)
      const month = yield* ledger.spent({ group: first.tenantId }, noon, "month")
      assert.strictEqual(month.month, 21_111)
    })

    test("when the keys of an account use several models, then each has what was used of it today, and what open requests hold", function* () {
      const ledger = yield* Ledger
      const first = callerOf()
      const second = { ...callerOf(undefined, first.tenantId), accountId: first.keyId }
      yield* (yield* Written).addKey(second)
      yield* closed(first, noon, 1)
      yield* closed(second, noon, 10, "m")
      yield* closed(second, noon - day, 100)
      yield* closed(second, noon, 1000, "m:1")
      yield* closed(callerOf(), noon, 5_000_000)
      const open = intentOf({ caller: second, admittedAt: noon, arrivedAt: noon, held: 20_000 })
      yield* (yield* Audit).open(queuedFor(open))
      const today = (model: string, at = noon) =>
        Effect.map(ledger.spent({ ...accountOf(first), model }, at, "day"), ({ day }) => day)
      assert.strictEqual(yield* today("m"), 20_011)
      assert.strictEqual(yield* today("m:1"), 1000)
      assert.strictEqual(yield* today("other"), 0)
      assert.strictEqual(yield* today("m", noon - day), 100)
    })

    test("when a key has another tenant by now, then what its open request holds is of the tenant that asked", function* () {
      const ledger = yield* Ledger
      const before = callerOf()
      const now = { ...callerOf(), keyId: before.keyId, accountId: before.keyId }
      yield* (yield* Written).addKey(now)
      const open = intentOf({ caller: before, admittedAt: noon, arrivedAt: noon, held: 20_000 })
      yield* (yield* Audit).open(queuedFor(open))
      for (const [{ tenantId }, held] of [
        [before, 20_000],
        [now, 0]
      ] as const) {
        assert.strictEqual((yield* ledger.spent({ group: tenantId }, noon, "day")).day, held)
      }
    })

    test("when a request is on the edge of a period, then it counts for its own UTC day, to the millisecond", function* () {
      const ledger = yield* Ledger
      const caller = callerOf()
      const [first, last] = [Date.UTC(2026, 10, 1), Date.UTC(2026, 11, 1) - 1]
      yield* closed(caller, noon, 1)
      yield* closed(caller, noon - day, 10)
      yield* closed(caller, first, 100)
      yield* closed(caller, first - 1, 1000)
      yield* closed(caller, last, 10_000)
      yield* closed(caller, last + 1, 100_000)
      yield* closed(callerOf(), noon, 5_000_000)
      assert.deepStrictEqual(yield* ledger.spent(accountOf(caller), noon, "total"), {
        day: 1,
        week: 11,
        month: 10_111,
        total: 111_111
      })
      assert.deepStrictEqual(yield* ledger.spent(accountOf(caller), first - 1, "total"), {
        day: 1000,
        // From Monday, the 26th, to Sunday, the 1st.
        week: 1100,
        month: 1000,
        total: 111_111
      })
      assert.deepStrictEqual(yield* ledger.spent(accountOf(caller), noon + 365 * day, "total"), {
        day: 0,
        week: 0,
        month: 0,
        total: 111_111
      })
    })

    test("when an account is asked what it used, then it is by day and model, the newest first, of all its keys and no other", function* () {
      const ledger = yield* Ledger
      const first = callerOf()
      const second = { ...callerOf(undefined, first.tenantId), accountId: first.keyId }
      yield* (yield* Written).addKey(first)
      yield* (yield* Written).addKey(second)
      yield* closed(first, noon, 1)
      yield* closed(second, noon, 10)
      yield* closed(second, noon - day, 100)
      yield* closed(second, noon - 2 * day, 1000)
      yield* closed(callerOf(undefined, first.tenantId), noon, 5_000_000)
      const use = (date: string, requests: number, tokens_in: number) => ({
        day: date,
        model: "m:latest",
        requests,
        tokens_in,
        tokens_out: 0
      })
      const both = [use("2026-11-21", 2, 11), use("2026-11-20", 1, 100)]
      for (const { accountId } of [first, second])
        assert.deepStrictEqual(yield* ledger.uses(accountId, "2026-11-20", 10), both)
      assert.deepStrictEqual(yield* ledger.uses(first.accountId, "2026-11-20", 1), both.slice(0, 1))
      assert.deepStrictEqual(yield* ledger.uses(first.accountId, "2026-11-22", 10), [])
    })

    test("when sums are large, then they are exact", function* () {
      const ledger = yield* Ledger
      const caller = callerOf()
      yield* closed(caller, noon, 2 ** 52)
      yield* closed(caller, noon, 3)
      assert.strictEqual((yield* ledger.spent(accountOf(caller), noon, "total")).total, 2 ** 52 + 3)
    })
  })
