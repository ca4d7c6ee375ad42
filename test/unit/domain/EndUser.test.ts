import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { endUserOf, maxEndUser } from "../../../src/domain/EndUser.ts"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"

describe("endUserOf", () => {
  it("when a claim has blanks at its ends, control characters or nothing else, then they are removed", () => {
    assert.strictEqual(endUserOf(" \tann@example.org\r\n"), "ann@example.org")
    assert.strictEqual(endUserOf("a\u0000n\u001b[31mn\u202e"), "an[31mn")
    assert.strictEqual(endUserOf("\ud800ann"), "\ufffdann")
    for (const nothing of [undefined, "", "  ", "\u0000\n", "\u200f "]) assert.isUndefined(endUserOf(nothing))
  })

  it("when a name is typed in another form, or between any blanks, then it is the same person, and another case is another", () => {
    const blanks = "\t \u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\ufeff"
    for (const typed of [
      "Zoe\u0308",
      "Zo\u0000e\u0308",
      `${blanks}Zo\u00eb${blanks}`,
      `\u0085${" ".repeat(300)}Zo\u00eb`
    ])
      assert.strictEqual(endUserOf(typed), "Zo\u00eb", JSON.stringify(typed))
    assert.strictEqual(endUserOf("zoe\u0308"), "zo\u00eb")
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 200 }), (claim) => {
        const name = endUserOf(claim)
        if (name === undefined) return
        assert.strictEqual(name, name.normalize("NFC"))
        assert.strictEqual(name, endUserOf(name))
        assert.isAtMost(name.length, maxEndUser)
      }),
      { numRuns: 5000 }
    )
  })

  it("when a claim is too long, then its first 128 characters stay, and no half of a pair", () => {
    assert.strictEqual(endUserOf("x".repeat(100_000)), "x".repeat(maxEndUser))
    assert.strictEqual(endUserOf(`${"x".repeat(127)}\u{1f4a9}`), `${"x".repeat(127)}\ufffd`)
    assert.strictEqual(endUserOf(`${"x".repeat(127)} y`), "x".repeat(127))
  })

  it("when a claim is one of our keys, also one that is cut or split, then its secret is removed", () => {
    const key = mintKey("tg_")
    for (const claim of [key, `Bearer ${key}`, `${"x".repeat(110)}${key}`, key.replace("_", "_\u0000")]) {
      assert.notInclude(endUserOf(claim) ?? "", key.slice(13, 20))
    }
    assert.strictEqual(endUserOf(key), `${prefixOf(key)}…`)
  })
})
