/** Base64 of any length, in fields and in files. */
import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { isBase64 } from "../../../../src/http/dialect/base64.ts"
import { fileText } from "../../../../src/http/dialect/documents.ts"

it("when a text is of any characters, then it is base64 if the pattern of the document of the API says so", () => {
  const part = fc.oneof(
    fc.constantFrom("=", "==", "!", "\n", "-", "_"),
    fc.string({ unit: fc.constantFrom(..."aZ09+/"), maxLength: 5 })
  )
  // Longer texts are read in several pieces.
  const start = fc.constantFrom(0, 65_534, 65_536, 131_072).map((length) => "a".repeat(length))
  fc.assert(
    fc.property(start, fc.array(part, { maxLength: 4 }), (before, parts) => {
      const text = before + parts.join("")
      assert.strictEqual(isBase64(text), /^[A-Za-z0-9+/]*={0,2}$/.test(text), text.slice(-20))
    }),
    { numRuns: 2000 }
  )
})

it("when a file is base64 or a data: URL, then its text is read, however long it is", () => {
  const long = "text of a file, ".repeat(1_000_000)
  const base64 = Buffer.from(long).toString("base64")
  assert.strictEqual(fileText(base64), long)
  assert.strictEqual(fileText(`data:text/plain;charset=utf-8;base64,${base64}`), long)
  for (const other of [
    `${base64}!`,
    `data:text/plain,${base64}`,
    `data:text/plain;base64${base64}`,
    `x,${base64}`
  ])
    assert.isUndefined(fileText(other))
  assert.isUndefined(fileText(`data:application/pdf;base64,${base64}`))
})
