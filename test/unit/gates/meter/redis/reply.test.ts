/** What is taken for an answer of a script, and what is not. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { parseReply } from "../../../../../src/gates/meter/redis/reply.ts"

/** As the scripts make them: `reply` and `reply_with_headroom`. */
const counts = {
  reserved: 15,
  refused: 15,
  missing: 7,
  stale: 1,
  ended: 0,
  renewed: 2,
  left: 11,
  surveyed: 5,
  repaired: 1,
  done: 0
} as const

const wordsOf = (tag: string, count: number): string => tag + " 1".repeat(count)

describe("an answer of a script", () => {
  it("when it is well-formed, then it is read as it was written", () => {
    const id = fc.uuid()
    // -0 is said as 0.
    const integer = fc.maxSafeInteger().map((n) => n + 0)
    const numbers = fc.array(integer, { minLength: counts.surveyed, maxLength: counts.surveyed })
    fc.assert(
      fc.property(numbers, fc.array(id), (numbers, ids) => {
        const said = ["surveyed", ...numbers].join(" ")
        assert.deepStrictEqual(parseReply(said), { tag: "surveyed", numbers, ids: [] })
        assert.deepStrictEqual(parseReply(`${said};${ids.join(";")}`), { tag: "surveyed", numbers, ids })
      })
    )
  })

  it.each(Object.entries(counts))(
    "when %s has more or fewer numbers than its %i, then it is refused",
    (tag, count) => {
      const lengths = [0, 1, 2, 5, 7, 11, 14, 15, 16].filter((length) => length !== count)
      assert.strictEqual(parseReply(wordsOf(tag, count))?.numbers.length, count)
      for (const length of lengths) assert.isUndefined(parseReply(wordsOf(tag, length)), `${length} numbers`)
    }
  )

  const nonsense = [
    null,
    12,
    ["renewed", [1, 2]],
    "",
    "lost 1 2",
    "renewed 1  2",
    "stale 1 ",
    "renewed 1 ",
    "stale 1.5",
    "stale one",
    "stale -",
    "stale 1e3",
    "stale inf",
    "stale -nan",
    "stale 9007199254740993"
  ]
  it.each(nonsense)("when it is %j, then it is refused", (value) => assert.isUndefined(parseReply(value)))
})
