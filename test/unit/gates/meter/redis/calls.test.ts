/** How calls of an account's script become one command: which of them share their numbers and keys. */
import { assert, describe, it } from "@effect/vitest"
import type { Claims } from "../../../../../src/domain/Reservation.ts"
import { makeCalls } from "../../../../../src/gates/meter/redis/calls.ts"

const midnight = Date.UTC(2026, 10, 22)
const instant = midnight + 1000

const claims = (changes: Partial<Claims> = {}): Claims => ({
  account: { group: "tenant", key: "key" },
  limits: { rpm: 60, tpm: 1000, concurrent: 4 },
  budgets: { day: 5 },
  tenantBudgets: { month: 7 },
  ...changes
})

/** The lines of numbers, one for each section, and the keys of the command. */
const encoded = (calls: ReadonlyArray<readonly [Claims, id: string, instant: number, now: number]>) => {
  const { callOf, encode } = makeCalls("p:", "LIVES", "run")
  const { args, keys, order } = encode(
    calls.map(([claims, id, instant, now]) => callOf(claims, id, instant, now, [1, 2]))
  )
  return {
    order,
    keys: keys.flatMap((key) => (typeof key === "string" ? [key] : key.texts)),
    numbers: String(args[0])
  }
}

const day = Math.floor(midnight / 86_400_000)
const shared = `${day},60,1000,4,LIVES,5,-1,-1,-1,7,-1`
const keysOf = (name: string, group: string, date = "2026-11-22") => [
  `${name}:windows`,
  ...[name, group].flatMap((owner) =>
    [date, date.slice(0, 7), "total"].map((counter) => `${owner}:tokens:${counter}`)
  )
]

describe("calls of one command", () => {
  it("when they are of one account, then they share its keys and numbers, and only their records differ", () => {
    // The claims of each request are other objects with the same values.
    const found = encoded([
      [claims(), "a", instant, -1],
      [claims(), "b", instant + 1, -1]
    ])
    assert.strictEqual(found.numbers, `[2,20,2,-1,${shared},1,2,1,2]`)
    assert.deepStrictEqual(found.order, [0, 1])
    assert.deepStrictEqual(found.keys, [
      ...keysOf("p:{tenant}:key", "p:{tenant}"),
      "p:{tenant}:request:a",
      "p:{tenant}:request:b"
    ])
    assert.strictEqual("p:{tenant}:request:a".slice(20 - 1), "a")
  })

  const other: ReadonlyArray<readonly [what: string, Partial<Claims>, numbers: string]> = [
    ["requests", { limits: { rpm: 61, tpm: 1000, concurrent: 4 } }, "61,1000,4,LIVES,5,-1,-1,-1,7,-1"],
    ["tokens", { limits: { rpm: 60, tpm: 1001, concurrent: 4 } }, "60,1001,4,LIVES,5,-1,-1,-1,7,-1"],
    ["slots", { limits: { rpm: 60, tpm: 1000, concurrent: 5 } }, "60,1000,5,LIVES,5,-1,-1,-1,7,-1"],
    ["the day's budget", { budgets: { day: 6 } }, "60,1000,4,LIVES,6,-1,-1,-1,7,-1"],
    ["the month's budget", { budgets: { day: 5, month: 8 } }, "60,1000,4,LIVES,5,8,-1,-1,7,-1"],
    ["the whole budget", { budgets: { day: 5, total: 8 } }, "60,1000,4,LIVES,5,-1,8,-1,7,-1"],
    ["no budget", { budgets: {} }, "60,1000,4,LIVES,-1,-1,-1,-1,7,-1"],
    ["the tenant's budget", { tenantBudgets: { month: 8 } }, "60,1000,4,LIVES,5,-1,-1,-1,8,-1"]
  ]
  it.each(other)(
    "when %s of an account change, then the next call has the new ones",
    (_, change, numbers) => {
      const found = encoded([
        [claims(), "a", instant, -1],
        [claims(change), "b", instant, -1],
        [claims(), "c", instant, -1]
      ])
      const lines = [`1,20,2,-1,${shared},1,2`, `1,20,2,-1,${day},${numbers},1,2`, `1,20,2,-1,${shared},1,2`]
      assert.strictEqual(found.numbers, `[${lines.join(",")}]`)
    }
  )

  it("when accounts of two tenants have the same name, then each has its own keys", () => {
    const found = encoded([
      [claims(), "a", instant, -1],
      [claims({ account: { group: "b", key: "key" } }), "b", instant, -1],
      [claims({ account: { group: "tenant", key: "another" } }), "c", instant, -1]
    ])
    assert.deepStrictEqual(found.keys, [
      ...keysOf("p:{tenant}:key", "p:{tenant}"),
      "p:{tenant}:request:a",
      ...keysOf("p:{b}:key", "p:{b}"),
      "p:{b}:request:b",
      ...keysOf("p:{tenant}:another", "p:{tenant}"),
      "p:{tenant}:request:c"
    ])
  })

  it("when calls of two accounts alternate, then those of an account follow each other, and the order says whose each is", () => {
    const second = claims({ account: { group: "tenant", key: "another" } })
    const found = encoded([
      [claims(), "a", instant, -1],
      [second, "b", instant, -1],
      [claims(), "c", instant, -1]
    ])
    assert.deepStrictEqual(found.order, [0, 2, 1])
    assert.strictEqual(found.numbers, `[2,20,2,-1,${shared},1,2,1,2,1,20,2,-1,${shared},1,2]`)
  })

  it("when a request was admitted the day before, then its call has the counters of that day", () => {
    const found = encoded([
      [claims(), "a", instant, -1],
      [claims(), "b", midnight - 1, -1]
    ])
    assert.deepStrictEqual(found.keys, [
      ...keysOf("p:{tenant}:key", "p:{tenant}"),
      "p:{tenant}:request:a",
      ...keysOf("p:{tenant}:key", "p:{tenant}", "2026-11-21"),
      "p:{tenant}:request:b"
    ])
  })

  it("when calls have different times, then each has its own", () => {
    const found = encoded([
      [claims(), "a", instant, 5],
      [claims(), "b", instant, 6]
    ])
    assert.strictEqual(found.numbers, `[1,20,2,5,${shared},1,2,1,20,2,6,${shared},1,2]`)
  })

  it("when more accounts call than are remembered, then each still has its own keys", () => {
    const { callOf } = makeCalls("p:", "LIVES", "run")
    const call = (n: number) =>
      callOf(claims({ account: { group: "tenant", key: `key-${n}` } }), "a", instant, -1, []).section.keys
        .texts[0]
    for (const n of [...Array(1001).keys(), 0]) assert.strictEqual(call(n), `p:{tenant}:key-${n}:windows`)
  })
})
