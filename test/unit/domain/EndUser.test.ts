import { assert, describe, it } from "@effect/vitest"
import { endUserOf, maxEndUser } from "../../../src/domain/EndUser.ts"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"

describe("endUserOf", () => {
  it("when a claim has blanks at its ends, control characters or nothing else, then they are removed", () => {
    assert.strictEqual(endUserOf(" \tann@example.org\r\n"), "ann@example.org")
    assert.strictEqual(endUserOf("a\u0000n\u001b[31mn\u202e"), "an[31mn")
    assert.strictEqual(endUserOf("\ud800ann"), "\ufffdann")
    for (const nothing of [undefined, "", "  ", "\u0000\n", "\u200f "]) assert.isUndefined(endUserOf(nothing))
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
