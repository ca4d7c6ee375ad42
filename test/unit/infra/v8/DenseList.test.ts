import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { DenseList, type Handle } from "../../../../src/infra/v8/DenseList.ts"

it("when entries are added and removed, then it holds those that were not removed, and no others", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(9), { maxLength: 60 }), (turns) => {
      const roster = new DenseList<{ readonly n: number }>()
      const expected = new Map<number, Handle>()
      turns.forEach((turn, n) => {
        const leaving = [...expected.keys()][turn]
        const seat = leaving === undefined ? undefined : expected.get(leaving)
        if (leaving === undefined || seat === undefined) {
          expected.set(n, roster.add({ n }))
          return
        }
        roster.remove(seat)
        roster.remove(seat)
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

it("when an entry is added or removed during a walk, then the walk goes on", () => {
  const roster = new DenseList<() => void>()
  const told: Array<string> = []
  const first = roster.add(() => {
    told.push("first")
    roster.remove(first)
    roster.add(() => void told.push("late"))
  })
  roster.add(() => void told.push("second"))
  for (const tell of roster.all) tell()
  assert.deepStrictEqual(told, ["first", "second"])
  assert.strictEqual(roster.size, 2)
})
