import { assert, it } from "@effect/vitest"
import { languageOf, piecesOf } from "../script/highlight.js"

const coloured = (label: string, text: string) => {
  const language = languageOf(label)
  let open: string | undefined
  return text.split("\n").map((line) => {
    const read = piecesOf(language, line, open)
    open = read.open
    return read.pieces
  })
}
const kinds = (label: string, text: string) =>
  coloured(label, text)
    .flat()
    .filter(([, kind]) => kind !== "")
    .map(([piece, kind]) => `${kind} ${piece}`)

it("when code is coloured, then words, strings, comments, numbers and calls are told apart", () => {
  assert.deepStrictEqual(kinds("python", "def f(x): # why\n    return 'a' + str(4.2)"), [
    "k def",
    "f f",
    "c # why",
    "k return",
    "s 'a'",
    "f str",
    "n 4.2"
  ])
  assert.deepStrictEqual(kinds("ts", "const a: Point = new Map() // x"), [
    "k const",
    "t Point",
    "k new",
    "f Map",
    "c // x"
  ])
  assert.deepStrictEqual(kinds("json", '{"a": [1, true, "b"]}'), ['k "a"', "n 1", "k true", 's "b"'])
  assert.deepStrictEqual(kinds("SQL", "select a FROM t -- all"), ["k select", "k FROM", "c -- all"])
  assert.deepStrictEqual(kinds("html", '<a href="x">'), ["k <a", 's "x"', "k >"])
})

it("when a comment or a string goes over lines, then each line has its colour", () => {
  assert.deepStrictEqual(kinds("js", "a /* one\ntwo */ b `x\ny` c"), ["c /* one", "c two */", "s `x", "s y`"])
  assert.deepStrictEqual(kinds("py", '"""doc\nmore""" + 1'), ['s """doc', 's more"""', "n 1"])
})

it("when code is coloured, then no letter of it is lost, in any language and with any label", () => {
  const text = `x = "it's" /* a */ # b // c\n\`\`\` '''d''' <!-- e --> \\"f\\\n-- g 0x1f \u{1f600} é_1()\n`
  for (const label of [
    "js",
    "py",
    "html",
    "css",
    "sh",
    "sql",
    "yaml",
    "json",
    "rust",
    "go",
    "nothing",
    "constructor",
    ""
  ])
    assert.strictEqual(
      coloured(label, text)
        .map((pieces) => pieces.map(([piece]) => piece).join(""))
        .join("\n"),
      text,
      label
    )
})
