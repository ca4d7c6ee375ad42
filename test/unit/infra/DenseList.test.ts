import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Roster, type Seat } from "../../../src/infra/DenseList.ts"

it("whoever entered and has not left is there, and nobody else", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(9), { maxLength: 60 }), (turns) => {
      const roster = new Roster<{ readonly n: number }>()
      const expected = new Map<number, Seat>()
      turns.forEach((turn, n) => {
        const leaving = [...expected.keys()][turn]
        const seat = leaving === undefined ? undefined : expected.get(leaving)
        if (leaving === undefined || seat === undefined) {
          expected.set(n, roster.enter({ n }))
          return
        }
        roster.leave(seat)
        roster.leave(seat)
        expected.delete(leaving)
      })
      assert.strictEqual(roster.size, expected.size)
      assert.sameMembers(
        roster.all.map(({ n }) => n),
        [...expected.keys()]
      )
    })
  )
})

it("those who are told may leave, or enter, while they are told", () => {
  const roster = new Roster<() => void>()
  const told: Array<string> = []
  const first = roster.enter(() => {
    told.push("first")
    roster.leave(first)
    roster.enter(() => void told.push("late"))
  })
  roster.enter(() => void told.push("second"))
  for (const tell of roster.all) tell()
  assert.deepStrictEqual(told, ["first", "second"])
  assert.strictEqual(roster.size, 2)
})
