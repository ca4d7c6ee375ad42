/** Every number and every list of texts or numbers of a request has a bound, whatever field it is in. */
import { assert, describe, it } from "@effect/vitest"
import { Schema, SchemaAST } from "effect"
import * as messages from "../../../../src/http/dialect/messages/dialect.ts"
import * as native from "../../../../src/http/dialect/native/dialect.ts"
import * as openai from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { smallest } from "../../../../src/http/dialect/sampling.ts"
import { ranges } from "../../../../build/openapi/generated.ts"
import { cap, decoding } from "../decoding.ts"

const dialects = Object.entries({ ...messages, ...native, ...openai, responses })

const accepts = (ast: SchemaAST.AST, value: unknown): boolean => Schema.is(Schema.make(ast))(value)

/** More than any list of a request may have. */
const tooMany = 200_000
/** No client's 64 bits reach so far. */
const tooLarge = [1e19, -1e19, Number.MAX_VALUE, -Number.MAX_VALUE]
/** Safe integers are what a whole number without a bound takes, and no more. */
const isAnyWhole = (ast: SchemaAST.AST) => accepts(ast, Number.MAX_SAFE_INTEGER) && !accepts(ast, 2 ** 60)
const isNumber = (ast: SchemaAST.AST) => ast._tag === "Number" || ast._tag === "BigInt"
const isText = (ast: SchemaAST.AST) => ast._tag === "String"

/** Places of a schema that take a number, or a list of texts or numbers, of any size. */
const unbounded = (ast: SchemaAST.AST, path: string): ReadonlyArray<string> => {
  switch (ast._tag) {
    case "Number":
      return isAnyWhole(ast) || tooLarge.some((value) => accepts(ast, value)) ? [path] : []
    case "BigInt":
      return [path]
    case "Union":
      return ast.types.flatMap((type) => unbounded(type, path))
    case "Suspend":
      return unbounded(ast.thunk(), path)
    case "Arrays": {
      const long = Array.from({ length: tooMany }, () => (ast.rest.some(isNumber) ? 1 : "m"))
      return [
        ...(ast.rest.some((rest) => isNumber(rest) || isText(rest)) && accepts(ast, long) ? [path] : []),
        ...[...ast.elements, ...ast.rest].flatMap((element) => unbounded(element, `${path}[]`))
      ]
    }
    case "Objects":
      return ast.propertySignatures.flatMap((property) =>
        unbounded(property.type, `${path}.${String(property.name)}`)
      )
    default:
      return []
  }
}

describe("numbers and lists of a request", () => {
  it("when a field has no bound, then the search finds it", () => {
    const schema = Schema.Struct({
      a: Schema.optionalKey(Schema.NullOr(Schema.Int)),
      b: Schema.Array(Schema.Struct({ c: Schema.Array(Schema.String), d: Schema.Finite })),
      e: Schema.Int.check(Schema.isGreaterThan(0)),
      fine: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1 }))
    })
    assert.deepStrictEqual(unbounded(schema.ast, ""), [".a", ".b[].c", ".b[].d", ".e"])
  })

  for (const [name, { accepts: schema }] of dialects) {
    it(`when fields are declared for ${name}, then all have a bound`, () =>
      assert.deepStrictEqual(unbounded(schema.ast, ""), []))
  }

  const chat = decoding(native.nativeChat)
  const openaiChat = decoding(openai.openaiChat)
  const withOptions = (options: { readonly [key: string]: number }) => ({ model: "m", messages: [], options })
  const plain = { model: "m", messages: [{ role: "user", content: "hi" }] }

  for (const { name, minimum, maximum } of ranges()) {
    it(`when ${name} is at either of its bounds, then it passes, and beyond them it is refused on both surfaces`, () => {
      for (const value of [minimum, maximum]) {
        assert.strictEqual(chat.accepted(withOptions({ [name]: value })).options[name], value)
      }
      const beyond = [
        minimum - Math.max(1, Math.abs(minimum) * 0.001),
        maximum + Math.max(1, maximum * 0.001)
      ]
      for (const value of [...beyond, -1e38, 1e38, -3.4e38]) {
        assert.include(
          chat.refused(withOptions({ [name]: value })),
          `options.${name}: expected`,
          String(value)
        )
        if (name in openaiChat.accepted({ ...plain, [name]: maximum }).options) {
          assert.include(openaiChat.refused({ ...plain, [name]: value }), `${name}: expected`)
        }
      }
    })
  }

  it("when a number is too small to divide by, then 0 is sent", () => {
    for (const value of [1e-38, 1e-37, -1e-320, smallest / 2]) {
      assert.deepStrictEqual(chat.accepted(withOptions({ presence_penalty: value })).options, {
        presence_penalty: 0
      })
    }
    assert.deepStrictEqual(openaiChat.accepted({ ...plain, temperature: 1e-38 }).options, { temperature: 0 })
    assert.deepStrictEqual(openaiChat.accepted({ ...plain, temperature: smallest }).options, {
      temperature: smallest
    })
  })

  it("when a seed has 64 bits or a fraction, then it is sent as a whole number", () => {
    const cases: ReadonlyArray<readonly [number, number]> = [
      [7, 7],
      [7.9, 7],
      [-1.5, -1],
      [2 ** 62, 2 ** 62]
    ]
    for (const [seed, sent] of cases) {
      assert.strictEqual(chat.accepted(withOptions({ seed })).options["seed"], sent)
      assert.strictEqual(openaiChat.accepted({ ...plain, seed }).options["seed"], sent)
    }
  })

  it("when stop lists are within their bounds in count and length, then they pass on both surfaces, and beyond them not", () => {
    const [long, many] = [["x".repeat(257)], Array.from({ length: 65 }, () => "x")]
    for (const stop of [long, many]) {
      assert.include(chat.refused({ model: "m", options: { stop } }), "options.stop")
      assert.include(openaiChat.refused({ ...plain, stop }), "stop")
    }
    assert.include(openaiChat.refused({ ...plain, stop: "x".repeat(257) }), "stop")
  })

  it("when the bound on the answer is negative, then the cap is sent on both surfaces, and 0 is refused", () => {
    for (const value of [-1, -2, -100]) {
      assert.isUndefined(chat.accepted(withOptions({ num_predict: value })).maxTokens)
      assert.isUndefined(openaiChat.accepted({ ...plain, max_tokens: value }).maxTokens)
      assert.isUndefined(openaiChat.accepted({ ...plain, max_completion_tokens: value }).maxTokens)
    }
    for (const value of [0, cap + 1, 2 ** 40]) {
      assert.include(
        chat.refused(withOptions({ num_predict: value })),
        "options.num_predict: expected a whole number"
      )
      assert.include(
        openaiChat.refused({ ...plain, max_tokens: value }),
        "max_tokens: expected a whole number"
      )
    }
  })
})
