/**
 * No regular expression of the product takes more than linear time. Such a pattern has two unbounded repetitions that may match
 * the same characters, or one that is tried again from each character of a run. One of them in a header cost 400 ms of CPU.
 */
import { assert, describe, it } from "@effect/vitest"
import { analyse } from "scslre"
import { parseAst } from "vitest/node"
import { sourcesIn, textOf } from "../support/sources.ts"

interface Pattern {
  readonly source: string
  readonly flags: string
}

/** Why a pattern takes more than linear time, and on which character; undefined when it does not. */
const problemOf = ({ flags, source }: Pattern): string | undefined => {
  const [report] = analyse({ source, flags }).reports
  return report === undefined ? undefined : `/${source}/${flags} on ${JSON.stringify(report.character.pick)}`
}

const fieldOf = (node: object, name: string): unknown => Reflect.get(node, name)

const stringOf = (node: object, name: string): string => {
  const value = fieldOf(node, name)
  return typeof value === "string" ? value : ""
}

const isNode = (value: unknown): value is object => typeof value === "object" && value !== null

/** The text of a literal, or of a template in which each expression is a digit. */
const writtenText = (node: unknown): string | undefined => {
  if (!isNode(node)) return ""
  const value = fieldOf(node, "value")
  if (typeof value === "string") return value
  const quasis = fieldOf(node, "quasis")
  if (!Array.isArray(quasis)) return undefined
  return quasis.map((quasi: { readonly value: { readonly cooked: string } }) => quasi.value.cooked).join("1")
}

const patternsIn = (node: unknown, found: Array<Pattern | string>): ReadonlyArray<Pattern | string> => {
  if (!isNode(node)) return found
  const regex = fieldOf(node, "regex")
  if (isNode(regex)) found.push({ source: stringOf(regex, "pattern"), flags: stringOf(regex, "flags") })
  const callee = fieldOf(node, "callee")
  const args = fieldOf(node, "arguments")
  if (isNode(callee) && fieldOf(callee, "name") === "RegExp" && Array.isArray(args)) {
    const [source, flags] = [writtenText(args[0]), writtenText(args[1])]
    found.push(
      source === undefined || flags === undefined
        ? "a pattern that is not written in place"
        : { source, flags }
    )
  }
  for (const child of Object.values(node)) patternsIn(child, found)
  return found
}

const problemsIn = (code: string): ReadonlyArray<string> =>
  patternsIn(parseAst(code, { lang: "ts" }), []).flatMap((pattern) =>
    typeof pattern === "string" ? [pattern] : (problemOf(pattern) ?? [])
  )

describe("regular expressions", () => {
  it("when a pattern takes more than linear time, then it is found", () => {
    for (const code of [
      String.raw`/^application\/json\s*(?:;\s*charset\s*=\s*utf-8\s*)?;?\s*$/i.test(x)`,
      String.raw`x.replace(/\s+$/, "")`,
      "const a: RegExp = /(a|a)*b/",
      'new RegExp(`^${name}:(.*)(.*)x$`, "m")',
      "RegExp(x)"
    ])
      assert.strictEqual(problemsIn(code).length > 0, true, code)
    assert.deepStrictEqual(
      problemsIn(String.raw`x.replace(/(?<!\s)\s+$/, "") ?? new RegExp("^[a-z]{1,3}")`),
      []
    )
  })

  it("when src, cli and build have patterns, then each takes linear time", () => {
    const files = sourcesIn("src", "cli", "build")
    assert.isAbove(files.length, 100)
    assert.deepStrictEqual(
      files.flatMap((file) => problemsIn(textOf(file)).map((problem) => `${file}: ${problem}`)),
      []
    )
  })
})
