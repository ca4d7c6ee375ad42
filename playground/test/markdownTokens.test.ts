/** What the page makes of markdown, before it becomes nodes. */
import { assert, it } from "@effect/vitest"
import { maxInline, settledEnd, tokensOf } from "../script/markdown.js"
import { atMost } from "../../test/support/wait.ts"

const typesOf = (text: string) => tokensOf(text).map(({ type }) => type)

it("when a text has maths, then its signs stay as they are", () => {
  const maths = ["\\(a_1^2 * b_1*2\\)", "$x_1 + x_2$", "$$\\frac{a_b}{c_d}$$", "\\[y_1 = z_2\\]"]
  for (const text of maths) {
    const [paragraph] = tokensOf(`See ${text} here.`)
    const found = paragraph?.tokens?.find(({ type }) => type === "maths")
    assert.strictEqual(found?.raw, text)
  }
  const [money] = tokensOf("It costs $5 and then $6 more.")
  assert.deepStrictEqual(
    money?.tokens?.map(({ type }) => type),
    ["text"]
  )
  assert.deepStrictEqual(typesOf("Before\n\n$$\na_1\n$$\n\nAfter"), [
    "paragraph",
    "space",
    "maths",
    "paragraph"
  ])
})

it("when a text is made to take long, then it is shown as it was written, and does not take long", () => {
  const hostile = [
    ">".repeat(5000),
    "- ".repeat(5000),
    "1. ".repeat(3000),
    "_a".repeat(15_000),
    "*a ".repeat(10_000),
    "[".repeat(20_000),
    "[a](".repeat(8000),
    "a**b".repeat(8000),
    "<!--".repeat(8000),
    "`a``".repeat(8000),
    `${" ".repeat(200)}- a\n`.repeat(100),
    "$a".repeat(8000),
    "\\(".repeat(8000),
    "|".repeat(20_000)
  ]
  for (const text of hostile) {
    const began = performance.now()
    const tokens = tokensOf(text)
    // The page reads 4 kB a frame; this is ten times as much, on a machine that does other work too.
    assert.isBelow(performance.now() - began, atMost(2000), text.slice(0, 10))
    assert.strictEqual(tokens.map(({ raw }) => raw).join(""), text)
  }
  assert.deepStrictEqual(typesOf(`${"> ".repeat(12)}deep`), ["plain"])
  const [long] = tokensOf("**a** ".repeat(maxInline))
  assert.deepStrictEqual(
    long?.tokens?.map(({ type }) => type),
    ["text"]
  )
})

it("when the end of a text is not decided, then it is not shown or is shown closed", () => {
  const shown: ReadonlyArray<readonly [string, string]> = [
    ["A **bold", "A **bold**"],
    ["A **bold ", "A **bold** "],
    ["A *word", "A *word*"],
    ["Some `code", "Some `code`"],
    ["See [the guide](https://exam", "See the guide"],
    ["Text\n\n#", "Text\n"],
    ["Text\n\n``", "Text\n"],
    ["Text\n\n```python", "Text\n"],
    ["- one\n-", "- one"],
    ["- one\n- ", "- one"],
    ["Text\n\n| a | b |\n|--", "Text\n"],
    ["| a | b |\n|---|---|\n| 1 | 2", "| a | b |\n|---|---|"],
    ["2 * 3 = 6", "2 * 3 = 6"],
    ["snake_case_name", "snake_case_name"],
    ["A **whole** one", "A **whole** one"]
  ]
  for (const [text, expected] of shown) assert.strictEqual(settledEnd(text), expected, text)
})
