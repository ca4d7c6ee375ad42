/** How calls of an account's script become one command: which of them share their keys and numbers. */
import { assert, it } from "@effect/vitest"
import { utc } from "../../../../../src/domain/Calendar.ts"
import type { Claims } from "../../../../../src/domain/Reservation.ts"
import { makeEncoder, makeKeys } from "../../../../../src/gates/meter/redis/accountCalls.ts"

const midnight = Date.UTC(2026, 10, 22)
const instant = midnight + 1000
const day = utc.dayAt(midnight)

const claims = (changes: Partial<Claims> = {}): Claims => ({
  account: { group: "tenant", key: "key" },
  limits: { rpm: 60, tpm: 1000, concurrent: 4 },
  budgets: { day: 5 },
  tenantBudgets: { month: 7 },
  ...changes
})

const encoded = (calls: ReadonlyArray<readonly [Claims, id: string, instant?: number, now?: number]>) =>
  makeEncoder(
    makeKeys("p:"),
    [11, 12, 13],
    10_000
  )(
    calls.map(([claims, id, at = instant, now = -1]) => ({
      claims,
      id,
      day: utc.dayAt(at),
      now,
      own: [1, 2]
    }))
  )

/** The numbers of a section. */
const section = (
  count: number,
  now = -1,
  limits = [60, 1000, 4],
  budgets = [5, -1, -1, -1, -1, -1, 7, -1]
) => {
  const own = Array.from({ length: count }, () => [1, 2]).flat()
  const today = [day.number, day.start, day.ends.day, 0]
  const noExtra = [0, 0, 0, 0, 0, 0]
  return [count, 20, 2, 1, now, ...today, ...noExtra, ...limits, 11, 12, 13, ...budgets, ...own]
}
const keysOf = (name: string, group: string, date = "2026-11-22") => [
  `${name}:account`,
  ...[name, group].flatMap((owner) =>
    [date, "w2026-11-16", date.slice(0, 7), "total"].map((counter) => `${owner}:tokens:${counter}`)
  )
]

it("when calls have the same claims, then they share their keys and numbers, and only their records differ", () => {
  const same = claims()
  const { names, numbers, order } = encoded([
    [same, "a"],
    [same, "b", instant + 1]
  ])
  assert.deepStrictEqual(numbers, section(2))
  assert.deepStrictEqual(order, [0, 1])
  const records = ["p:{tenant}:request:a", "p:{tenant}:request:b"]
  assert.deepStrictEqual(names, [...keysOf("p:{tenant}:key", "p:{tenant}"), ...records])
  assert.strictEqual(records[0]?.slice(20 - 1), "a")
})

it("when limits, budgets, the time or the day of an account change, then each call has its own", () => {
  const same = claims()
  const { names, numbers, order } = encoded([
    [same, "a"],
    [claims({ limits: { rpm: 61, tpm: 1001, concurrent: 5 } }), "b"],
    [claims({ budgets: {}, tenantBudgets: { total: 8 } }), "c"],
    [same, "d", instant, 5],
    [same, "e"],
    [same, "f", midnight - 1]
  ])
  assert.deepStrictEqual(order, [0, 4, 1, 2, 3, 5])
  assert.deepStrictEqual(numbers.slice(0, -31), [
    ...section(2),
    ...section(1, -1, [61, 1001, 5]),
    ...section(1, -1, undefined, [-1, -1, -1, -1, -1, -1, -1, 8]),
    ...section(1, 5)
  ])
  assert.deepStrictEqual(names.slice(-10), [
    ...keysOf("p:{tenant}:key", "p:{tenant}", "2026-11-21"),
    "p:{tenant}:request:f"
  ])
})

it("when calls of several accounts alternate, then those of an account follow each other with its keys", () => {
  const another = claims({ account: { group: "tenant", key: "another" } })
  const stranger = claims({ account: { group: "b", key: "key" } })
  const same = claims()
  const { names, order } = encoded([
    [same, "a"],
    [another, "b"],
    [same, "c"],
    [stranger, "d"]
  ])
  assert.deepStrictEqual(order, [0, 2, 1, 3])
  assert.deepStrictEqual(names, [
    ...keysOf("p:{tenant}:key", "p:{tenant}"),
    "p:{tenant}:request:a",
    "p:{tenant}:request:c",
    ...keysOf("p:{tenant}:another", "p:{tenant}"),
    "p:{tenant}:request:b",
    ...keysOf("p:{b}:key", "p:{b}"),
    "p:{b}:request:d"
  ])
})

it("when a request is of a user, or for a model with limits, then these accounts follow with their limits, and a plain one has no more than before", () => {
  const user = { id: "ada", limits: { rpm: 5, tpm: 50, concurrent: 2 }, budgets: { total: 9 } }
  const model = { name: "m:1", limits: { rpm: 6, tpm: 60, concurrent: 4 }, budgets: { day: 8 } }
  const counters = (owner: string) =>
    ["2026-11-22", "w2026-11-16", "2026-11", "total"].map((counter) => `${owner}:tokens:${counter}`)
  const [key, group] = ["p:{tenant}:key", "p:{tenant}"]
  const [ofUser, ofModel] = [`${key}:users:ada`, `${key}:models:m:1`]
  const parts = (claimed: Partial<Claims>) => {
    const { names, numbers } = encoded([[claims(claimed), "a"]])
    return { names: names.slice(0, -1), accounts: numbers[3], numbers: numbers.slice(-18, -2) }
  }
  const plain = [13, 5, -1, -1, -1, -1, -1, 7, -1]
  assert.deepStrictEqual(parts({}).numbers.slice(-9), plain)
  assert.deepStrictEqual(parts({ model }), {
    names: [
      `${key}:account`,
      `${ofModel}:account`,
      `${key}:users`,
      ...[key, group, ofModel].flatMap(counters)
    ],
    accounts: 2,
    numbers: [...plain.slice(1), 8, -1, -1, -1, 6, 60, 4, 0]
  })
  assert.deepStrictEqual(parts({ user, model }), {
    names: [
      `${key}:account`,
      `${ofUser}:account`,
      `${ofModel}:account`,
      `${key}:users`,
      ...[key, group, ofUser, ofModel].flatMap(counters)
    ],
    accounts: 3,
    numbers: [-1, -1, -1, -1, 9, 8, -1, -1, -1, 5, 50, 2, 6, 60, 4, 10_000]
  })
})
