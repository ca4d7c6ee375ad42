import { Result } from "effect"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  maxContainers,
  maxEscaped,
  maxNames,
  maxValues,
  parseJson
} from "../../../../src/http/dialect/strictJson.ts"

const refused = (text: string): string => {
  const parsed = parseJson(text)
  return Result.isFailure(parsed) ? parsed.failure : "accepted"
}

const deep = (levels: number) => "[".repeat(levels) + "]".repeat(levels)

describe("a client's JSON", () => {
  it("when any JSON value is read, then the result is that value", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 20 }), (value) => {
        const text = JSON.stringify(value)
        assert.strictEqual(JSON.stringify(Result.getOrThrow(parseJson(text))), text)
      })
    )
  })

  it("when it has more objects, lists, keys or values than any request needs, then it is refused before it is parsed", () => {
    const lists = (count: number) => `[${Array.from({ length: count - 1 }, () => "{}").join(",")}]`
    assert.strictEqual(refused(lists(maxContainers)), "accepted")
    assert.strictEqual(refused(lists(maxContainers + 1)), "body: at most 32768 objects and lists")
    assert.strictEqual(refused(`["${"{".repeat(2 * maxContainers)}"]`), "accepted")
    const keys = (count: number) =>
      JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, i) => [i, 0])))
    assert.strictEqual(refused(keys(maxNames)), "accepted")
    assert.strictEqual(refused(keys(maxNames + 1)), "body: at most 4096 different keys")
    const again = `[${Array.from({ length: 7 }, () => keys(maxNames)).join(",")}]`
    assert.strictEqual(refused(again), "accepted", "the same keys cost little")
    const escaped = (key: string, count: number) =>
      `[${Array.from({ length: count }, (_, i) => `{"${key}":${i}}`).join(",")}]`
    for (const key of [String.raw`\n`, String.raw`\u0022`, String.raw`a\\`]) {
      assert.strictEqual(refused(escaped(key, maxEscaped)), "accepted")
      assert.strictEqual(
        refused(escaped(key, maxEscaped + 1)),
        "body: at most 512 keys with quotes, backslashes or control characters"
      )
    }
    assert.strictEqual(refused(escaped(String.raw`\u00f6`, 20_000)), "accepted")
    const numbers = (count: number) => JSON.stringify(Array.from({ length: count }, () => 1))
    assert.strictEqual(refused(numbers(maxValues)), "accepted")
    assert.strictEqual(refused(numbers(maxValues + 1)), "body: at most 262144 values")
    assert.strictEqual(refused(JSON.stringify(",".repeat(2 * maxValues))), "accepted")
  })

  it("when a key appears twice in an object, however it is written, then it is refused", () => {
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

  it("when keys are equal in different objects, or a value looks like a key, then it is accepted", () => {
    for (const text of ['[{"a":1},{"a":2}]', '{"a":{"a":{"a":1}}}', '{"a":"a","b":"a"}', '{"a":["a","a"]}']) {
      assert.isTrue(Result.isSuccess(parseJson(text)), text)
    }
  })

  it("when JSON has more than 64 levels, then it is refused without recursion", () => {
    assert.isTrue(Result.isSuccess(parseJson(deep(64))))
    assert.include(refused(deep(65)), "64 levels")
    assert.include(refused("[".repeat(131_072)), "64 levels")
    assert.include(refused('{"a":'.repeat(100_000)), "64 levels")
  })

  it("when a text is not one JSON value, then it is refused", () => {
    for (const text of ["", "{", '{"a":1}{"b":2}', "[1,]", "// x\n1", "{'a':1}", '"', "\uFEFF{}", "nul"]) {
      assert.include(refused(text), "valid JSON", JSON.stringify(text))
    }
  })

  it("when a key is __proto__, then it is a plain key", () => {
    const parsed = Result.getOrThrow(parseJson('{"__proto__":{"num_predict":1}}'))
    assert.isTrue(Object.hasOwn(Object(parsed), "__proto__"))
    assert.strictEqual(Reflect.get({}, "num_predict"), undefined)
  })
})
