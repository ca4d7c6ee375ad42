import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { readFileSync } from "node:fs"
import wabt from "wabt"
import { countNumbers } from "../../../src/backend/ollama/countNumbers.ts"
import { countSimpleNumbers, longestBytes, program } from "../../../src/backend/ollama/simpleNumbers.ts"

const folder = new URL("../../../src/backend/ollama/", import.meta.url)

it("when simpleNumbers.wat is assembled, then it is the program in simpleNumbers.ts", async () => {
  const name = "simpleNumbers.wat"
  const module = (await wabt()).parseWat(name, readFileSync(new URL(name, folder), "utf8"), { simd: true })
  assert.strictEqual(Buffer.from(module.toBinary({}).buffer).toString("base64"), program)
})

/** A number of the simple form, with `digits` after its point. */
const simple = fc
  .tuple(fc.boolean(), fc.nat(9), fc.stringMatching(/^[0-9]{0,24}$/))
  .map(
    ([isNegative, whole, digits]) => `${isNegative ? "-" : ""}${whole}${digits === "" ? "" : `.${digits}`}`
  )

it("when a vector is simple, then all of its numbers are counted", () => {
  fc.assert(
    fc.property(fc.array(simple, { minLength: 1, maxLength: 30 }), (numbers) => {
      assert.strictEqual(countSimpleNumbers(Buffer.from(`[${numbers.join(",")}]`)), numbers.length)
    }),
    { numRuns: 5000 }
  )
})

/** The count, if there is one, is that of `countNumbers`. */
const assertSame = (json: Buffer): void => {
  const count = countSimpleNumbers(json)
  if (count !== undefined)
    assert.strictEqual(count, countNumbers(json), JSON.stringify(json.toString("latin1")))
}

it("when bytes are changed, put in or taken out, then nothing is counted that countNumbers refuses", () => {
  const alphabet = fc.constantFrom(...Buffer.from("0019,,--..[]eE+/:; \n\u0000|}<=>"), 0x80, 0xac, 0xb0, 0xff)
  const change = fc.record({
    place: fc.nat(),
    bytes: fc.array(alphabet, { maxLength: 3 }),
    removed: fc.nat(3)
  })
  fc.assert(
    fc.property(
      fc.array(simple, { minLength: 1, maxLength: 12 }),
      fc.array(change, { minLength: 1, maxLength: 3 }),
      (numbers, changes) => {
        const json = changes.reduce(
          (text, { bytes, place, removed }) => {
            const at = place % text.length
            return Buffer.concat([text.subarray(0, at), Buffer.from(bytes), text.subarray(at + removed)])
          },
          Buffer.from(`[${numbers.join(",")}]`)
        )
        assertSame(json)
        assertSame(Buffer.concat([Buffer.from("["), json, Buffer.from("]")]))
      }
    ),
    { numRuns: 30_000 }
  )
})

it("when a vector has any few bytes, then nothing is counted that countNumbers refuses", () => {
  const bytes = [...Buffer.from("05,-./:[]e ")]
  const visit = (content: ReadonlyArray<number>): void => {
    assertSame(Buffer.from([0x5b, ...content, 0x5d]))
    if (content.length < 5) for (const byte of bytes) visit([...content, byte])
  }
  visit([])
  for (let byte = 0; byte < 256; byte += 1) {
    for (const before of ["", "0", "0.", "-", "1,"]) {
      for (const after of ["", "0", ".5", ",2"]) {
        assertSame(Buffer.concat([Buffer.from(`[${before}`), Buffer.of(byte), Buffer.from(`${after}]`)]))
      }
    }
  }
})

it("when a number has another form, then it is left to countNumbers", () => {
  for (const text of [
    "[]",
    "[12]",
    "[-10.5]",
    "[1e-7]",
    "[0.5,1.5E-07]",
    "[ 1]",
    "[1 ]",
    "[1, 2]",
    "1",
    "",
    "[1",
    "1]"
  ]) {
    assert.isUndefined(countSimpleNumbers(Buffer.from(text)), text)
  }
})

it("when a vector was counted before, then nothing of it counts in a shorter one", () => {
  const long = Buffer.from(`[${"0.5,".repeat(50)}1]`)
  for (const text of ["[1,2]", "[0.25]", "[7]"]) {
    assert.strictEqual(countSimpleNumbers(long), 51)
    assert.strictEqual(countSimpleNumbers(Buffer.from(text)), text.split(",").length)
    assert.isUndefined(countSimpleNumbers(Buffer.from("[0.]")))
  }
})

it("when a vector is longer than the memory of the program, then it is left to countNumbers", () => {
  const vectorOf = (bytes: number): Buffer => Buffer.from(`[0.${"1".repeat(bytes - 4)}]`)
  assert.strictEqual(countSimpleNumbers(vectorOf(longestBytes)), 1)
  assert.isUndefined(countSimpleNumbers(vectorOf(longestBytes + 1)))
  assert.strictEqual(countNumbers(vectorOf(longestBytes + 1)), 1)
})
