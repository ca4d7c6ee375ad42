/** Scripts for Redis are files of their own, in names that can be read. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { scripts } from "../../../src/gates/meter/redis/scripts.ts"

const root = path.resolve(import.meta.dirname, "../../..")
const filesOf = (ending: string) =>
  readdirSync(path.join(root, "src"), { recursive: true, encoding: "utf8" })
    .map((name) => path.posix.join("src", name))
    .filter((file) => file.endsWith(ending))
const textOf = (file: string) => readFileSync(path.join(root, file), "utf8")

it("when Redis runs a script, then it stands in a .lua file and not in a string of TypeScript", () => {
  assert.deepStrictEqual(
    filesOf(".ts").filter((file) => /redis\.call\(|\b(?:KEYS|ARGV)\[/.test(textOf(file))),
    []
  )
  assert.isAbove(filesOf(".lua").length, 10)
})

/** `local a, b = …`, `function f(a, b)`, `for a, b in …`; `i` counts and `_` is not used. */
const declared =
  /\blocal (?!function\b)([\w, ]+?)(?: =|$)|\bfunction [\w.]*\(([\w, ]*)\)|\bfor ([\w, ]+?) (?:=|in)\b/gm

it("when a script names something, then the name is a word", () => {
  const letters = filesOf(".lua").flatMap((file) =>
    [...textOf(file).replaceAll(/--.*$/gm, "").matchAll(declared)]
      .flatMap((match) => (match[1] ?? match[2] ?? match[3] ?? "").split(/,\s*/))
      .filter((name) => name.length === 1 && name !== "i" && name !== "_")
      .map((name) => `${file}: ${name}`)
  )
  assert.deepStrictEqual(letters, [])
})

it("when a request ends on a full Redis, then its script may write, and no other may", () => {
  const flags = Object.entries(scripts).map(([verb, text]) => [verb, text.slice(0, text.indexOf("\n"))])
  assert.deepStrictEqual(
    flags.filter(([, first]) => first !== "#!lua").toSorted(),
    ["cancel", "freeSlot", "settle"].map((verb) => [verb, "#!lua flags=allow-oom"])
  )
})
