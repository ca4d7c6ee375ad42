import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { clientText } from "../../../src/domain/clientText.ts"
import { keyShape, mintKey, prefixOf, redactKeys } from "../../../src/domain/Key.ts"

const shape = keyShape("tg_")

describe("Key", () => {
  it("when keys are made, then each has the shape of a key and no two are equal", () => {
    const keys = new Set(Array.from({ length: 2000 }, () => mintKey("tg_")))
    assert.strictEqual(keys.size, 2000)
    for (const key of keys) {
      assert.match(key, shape)
      assert.strictEqual(key.length, 44)
      assert.strictEqual(prefixOf(key).length, 12)
    }
  })

  it("when many keys are made, then each letter is equally frequent", () => {
    const counts = new Map<string, number>()
    const letters = Array.from({ length: 2000 }, () => mintKey("tg_").slice(3)).join("")
    for (const letter of letters) counts.set(letter, (counts.get(letter) ?? 0) + 1)
    assert.strictEqual(counts.size, 62)
    const expected = letters.length / 62
    // Chi-squared with 61 degrees of freedom exceeds 120 once in about 10^5 runs; the modulo bias would give > 400.
    const chi = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0)
    assert.isBelow(chi, 120)
  })

  it("when a text is not exactly a key, then it is refused", () => {
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

  it("when a text holds a key, whole, cut short or repeated, then the secret is redacted", () => {
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

  it("when a key is escaped in any way, any number of times, then its secret is redacted (A13)", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "grapheme-ascii", maxLength: 20 }),
        fc.array(fc.array(fc.nat(6), { minLength: 1, maxLength: 50 }), { maxLength: 3 }),
        fc.string({ unit: "grapheme-ascii", maxLength: 20 }),
        (before, layers, after) => {
          const key = mintKey("tg_")
          let spelled = key
          for (const ways of layers)
            spelled = [...spelled].map((char, at) => spellings[ways[at % ways.length] ?? 0]?.(char)).join("")
          const redacted = redactKeys(`${before}/${spelled}/${after}`)
          assert.notInclude(decoded(redacted), key.slice(12, 28))
          assert.notInclude(decoded(redacted), key.slice(-16))
          // What is stored is cut as well; no cut brings a secret back.
          assert.notInclude(decoded(clientText(`${before}/${spelled}/${after}`, 256)), key.slice(12, 28))
        }
      ),
      { numRuns: 2000 }
    )
  })

  it("when a text holds no key, then nothing is taken out of it, escapes included (A13)", () => {
    for (const plain of [
      "/api/%e4%b8%ad%e6%96%87/%2e%2e/etc%2fpasswd%3fa_b=cdefghi",
      `/files/${"%41".repeat(200)}`,
      "C:\\users\\x64\\u00e4_some_long_name_here",
      "100%_of_something_that_is_rather_long"
    ])
      assert.strictEqual(redactKeys(plain), plain)
  })

  it("when control characters stand inside a key, then what is left of it after cleaning is redacted (A13)", () => {
    const key = mintKey("tg_")
    assert.notInclude(clientText([...key].join("\u0001"), 128), key.slice(12, 28))
    assert.notInclude(clientText([...key].join("\u202e"), 128), key.slice(12, 28))
  })
})

const hex = (char: string): string => char.charCodeAt(0).toString(16).padStart(2, "0")
const spellings: ReadonlyArray<(char: string) => string> = [
  (char) => char,
  (char) => `%${hex(char)}`,
  (char) => `%${hex(char).toUpperCase()}`,
  (char) => `%u00${hex(char)}`,
  (char) => `\\u00${hex(char).toUpperCase()}`,
  (char) => `\\x${hex(char)}`,
  (char) => `${char}\u0002`
]

/** Every escape undone, slowly. */
const decoded = (text: string): string => {
  const once = text
    .replaceAll(
      /%([0-9a-f]{2})|(?:%|\\+)u([0-9a-f]{4})|\\+x([0-9a-f]{2})/gi,
      (_, ...groups: ReadonlyArray<string | undefined>) =>
        String.fromCharCode(Number.parseInt(groups[0] ?? groups[1] ?? groups[2] ?? "0", 16))
    )
    .replaceAll("\u0002", "")
  return once === text ? text : decoded(once)
}
