import { Result } from "effect"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { maxContainers, parseJson } from "../../../../src/http/dialect/strictJson.ts"

const refused = (text: string): string => {
  const parsed = parseJson(text)
  return Result.isFailure(parsed) ? parsed.failure : "accepted"
}

const deep = (levels: number) => "[".repeat(levels) + "]".repeat(levels)

describe("a client's JSON", () => {
  it("reads any JSON value exactly as JSON.parse does", () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 20 }), (text) => {
        assert.deepStrictEqual(Result.getOrThrow(parseJson(text)), JSON.parse(text))
      })
    )
  })

  it("when it has more objects and lists than any request needs, then it is refused before it is parsed", () => {
    const lists = (count: number) => `[${Array.from({ length: count - 1 }, () => "{}").join(",")}]`
    assert.strictEqual(refused(lists(maxContainers)), "accepted")
    assert.strictEqual(refused(lists(maxContainers + 1)), "body: at most 32768 objects and lists")
    assert.strictEqual(refused(`["${"{".repeat(2 * maxContainers)}"]`), "accepted")
  })

  it("refuses a key that appears twice, however it is written", () => {
    for (const text of [
      '{"a":1,"a":2}',
      String.raw`{"model":1,"mode\u006c":2}`,
      '{"a":{"b":1,"c":[{"d":1,"d":2}]}}',
      '{"a" :1,"a"\n:2}',
      String.raw`{"\"":1,"\"":2}`
    ]) {
      assert.include(refused(text), "twice", text)
    }
  })

  it("accepts equal keys in different objects and key-like values", () => {
    for (const text of ['[{"a":1},{"a":2}]', '{"a":{"a":{"a":1}}}', '{"a":"a","b":"a"}', '{"a":["a","a"]}']) {
      assert.isTrue(Result.isSuccess(parseJson(text)), text)
    }
  })

  it("stops at 64 levels, without recursion", () => {
    assert.isTrue(Result.isSuccess(parseJson(deep(64))))
    assert.include(refused(deep(65)), "64 levels")
    assert.include(refused("[".repeat(131_072)), "64 levels")
    assert.include(refused('{"a":'.repeat(100_000)), "64 levels")
  })

  it("refuses what is not one JSON value", () => {
    for (const text of ["", "{", '{"a":1}{"b":2}', "[1,]", "// x\n1", "{'a':1}", '"', "\uFEFF{}", "nul"]) {
      assert.include(refused(text), "valid JSON", JSON.stringify(text))
    }
  })

  it("keeps a __proto__ key a plain key", () => {
    const parsed = Result.getOrThrow(parseJson('{"__proto__":{"num_predict":1}}'))
    assert.isTrue(Object.hasOwn(Object(parsed), "__proto__"))
    assert.strictEqual(Reflect.get({}, "num_predict"), undefined)
  })
})
