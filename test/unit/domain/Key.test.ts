import { assert, describe, it } from "@effect/vitest"
import { keyShape, mintKey, prefixOf, redactKeys } from "../../../src/domain/Key.ts"

const shape = keyShape("tg_")

describe("Key", () => {
  it("mints keys of its own shape, never the same twice", () => {
    const keys = new Set(Array.from({ length: 2000 }, () => mintKey("tg_")))
    assert.strictEqual(keys.size, 2000)
    for (const key of keys) {
      assert.match(key, shape)
      assert.strictEqual(key.length, 44)
      assert.strictEqual(prefixOf(key).length, 12)
    }
  })

  it("draws every letter equally often", () => {
    const counts = new Map<string, number>()
    const letters = Array.from({ length: 2000 }, () => mintKey("tg_").slice(3)).join("")
    for (const letter of letters) counts.set(letter, (counts.get(letter) ?? 0) + 1)
    assert.strictEqual(counts.size, 62)
    const expected = letters.length / 62
    // Chi-squared with 61 degrees of freedom exceeds 120 once in about 10^5 runs; the modulo bias would give > 400.
    const chi = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
    assert.isBelow(chi, 120)
  })

  it("refuses whatever is not exactly a key", () => {
    const key = mintKey("tg_")
    for (const bad of [
      "",
      key.slice(1),
      `${key}a`,
      key.slice(0, -1),
      `${key}\n`,
      ` ${key}`,
      key.replace("tg_", "xx_"),
      `${key.slice(0, -1)}-`,
      `${key.slice(0, -1)}é`,
      `${key.slice(0, -1)}٣`,
      `${key.slice(0, -1)}\u0000`
    ]) {
      assert.notMatch(bad, shape)
    }
  })

  it("loses its secret where it is redacted: whole, cut short, in other words, one behind another", () => {
    const [key, other] = [mintKey("tg_"), mintKey("x9_")]
    for (const text of [
      key,
      key.slice(0, 30),
      `a${key}b`,
      key + other,
      `${other}${key}${other}`,
      `?k=${key}&x`
    ]) {
      const redacted = redactKeys(text)
      assert.notInclude(redacted, key.slice(12, 28))
      assert.notInclude(redacted, other.slice(12, 28))
      assert.include(redacted, prefixOf(key).slice(3))
    }
    for (const plain of ["tg_000000000", "gateway_requests_total", "m_0123456789abcdef:latest", "no key"])
      assert.strictEqual(redactKeys(plain), plain)
  })
})
