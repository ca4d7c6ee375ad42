/** What is taken for an answer of a script, and what is not. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { parseReply } from "../../../../../src/gates/meter/redis/reply.ts"

describe("an answer of a script", () => {
  it("when it is well-formed, then it is read as it was written", () => {
    const id = fc.uuid()
    // -0 is said as 0.
    const numbers = fc.array(fc.maxSafeInteger().map((n) => n + 0))
    fc.assert(
      fc.property(numbers, fc.array(id), (numbers, ids) => {
        const said = ["surveyed", ...numbers].join(" ")
        assert.deepStrictEqual(parseReply(said), { tag: "surveyed", numbers, ids: [] })
        assert.deepStrictEqual(parseReply(`${said};${ids.join(";")}`), { tag: "surveyed", numbers, ids })
      })
    )
  })

  const nonsense = [
    null,
    12,
    ["left", [1, 2]],
    "",
    "lost 1 2",
    "left 1  2",
    "left 1 ",
    "left 1.5",
    "left one",
    "left -",
    "left 1e3",
    "left inf",
    "left -nan",
    "left 9007199254740993"
  ]
  it.each(nonsense)("when it is %j, then it is refused", (value) => assert.isUndefined(parseReply(value)))
})
