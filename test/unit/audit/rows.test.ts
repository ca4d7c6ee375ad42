import { assert, describe, it } from "@effect/vitest"
import { mintKey } from "../../../src/domain/Key.ts"
import { clean } from "../../../src/audit/rows.ts"

describe("a client's words in an audit row", () => {
  it("when a client's words hold a key, then the row has no secret, wherever it was put and however it is cut", () => {
    const key = mintKey("tg_")
    for (const most of [256, 60, 50, 30]) {
      const kept = clean(`/api/${key}/chat`, most)
      assert.include(kept, key.slice(0, 12))
      assert.notInclude(kept, key.slice(12, 20))
    }
  })

  it("when a client's words hold bytes that Postgres refuses or a terminal obeys, then the row does not have them", () => {
    assert.strictEqual(clean("a\u0000b\u001b[31mc\r\nd\u202Ee\u2028f\u009bg", 128), "ab[31mcdefg")
    assert.isTrue(clean("x\ud800y", 128).isWellFormed())
    assert.isTrue(clean("x".repeat(127) + "😀", 128).isWellFormed())
  })

  it("when a client's words are long, then they are cut to the column's length", () => {
    assert.strictEqual(clean("m".repeat(100_000), 128).length, 128)
  })
})
