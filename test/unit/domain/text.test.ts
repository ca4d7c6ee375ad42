import { assert, it } from "@effect/vitest"
import { isPrintable } from "../../../src/domain/text.ts"

it("when a name has a character that nobody sees, then it is refused, but for those that scripts and emoji need", () => {
  for (const hidden of [
    "\u200b",
    "\u00ad",
    "\ufeff",
    "\u2060",
    "\u3164",
    "\u115f",
    "\u{e0041}",
    "\u202e",
    "\n",
    "\ud800"
  ])
    assert.isFalse(isPrintable(`a${hidden}b`), JSON.stringify(hidden))
  for (const name of ["Zoë", "می‌خواهم", "❤️", "👩‍💻", "李 明"]) assert.isTrue(isPrintable(name), name)
})
