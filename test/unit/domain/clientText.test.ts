import { assert, describe, it } from "@effect/vitest"
import { clientText, readLength } from "../../../src/domain/clientText.ts"
import { mintKey } from "../../../src/domain/Key.ts"

describe("a text of a client", () => {
  it("when a text holds a key, then no secret is kept, wherever it was put and however it is cut", () => {
    const key = mintKey("tg_")
    for (const most of [256, 60, 50, 30]) {
      const kept = clientText(`/api/${key}/chat`, most)
      assert.include(kept, key.slice(0, 12))
      assert.notInclude(kept, key.slice(12, 20))
    }
  })

  it("when a text holds bytes that Postgres refuses or a terminal obeys, then they are not kept", () => {
    assert.strictEqual(clientText("a\u0000b\u001b[31mc\r\nd\u202Ee\u2028f\u009bg", 128), "ab[31mcdefg")
    assert.isTrue(clientText("x\ud800y", 128).isWellFormed())
    assert.isTrue(clientText("x".repeat(127) + "😀", 128).isWellFormed())
  })

  it("when a text is long, then it is cut", () => {
    assert.strictEqual(clientText("m".repeat(100_000), 128).length, 128)
  })

  it("when the first cut goes through a key, then what is left of the key is not kept, at whatever character (A13)", () => {
    const key = mintKey("tg_")
    const resolve = (text: string) =>
      text.replaceAll(/%([0-9a-f]{2})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
    const hex = (text: string) => [...text].map((c) => `%${c.charCodeAt(0).toString(16)}`).join("")
    for (const most of [32, 64]) {
      for (let before = readLength(most) - 200; before < readLength(most); before += 1) {
        // A redacted key with a long spelling comes first, so that the cut is visible in what is kept.
        for (const spelled of [key, hex(key), hex(hex(key))]) {
          const long = `${key.slice(0, 12)}${"a".repeat(before - 12)}`
          const kept = clientText(`${long}/${spelled}/${"b".repeat(4000)}`, most)
          assert.isAtMost(kept.length, most)
          const resolved = resolve(resolve(kept))
          assert.notInclude(resolved, key.slice(12, 16), `${before}`)
        }
      }
    }
  })

  it("when a text is a little too long, then its end is like the end of any other", () => {
    assert.strictEqual(clientText("m/".repeat(100), 128), "m/".repeat(64))
  })
})
