/** The table of attacks and faults says what is there: every file exists, and holds the words it is cited with. */
import { existsSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"

const root = path.resolve(import.meta.dirname, "../..")
const [, table = ""] = readFileSync(path.join(root, "docs/hardening.md"), "utf8").split("<!-- rows -->")
const rows = [...table.matchAll(/^\| ([A-Z]\d{2}|malformed) \| (.+) \| (.+) \|$/gm)].map(
  ([, id = "", what = "", held = ""]) => ({ id, what, held })
)

it("when a row is in the hardening table, then it is there once and cites a test", () => {
  assert.isAtLeast(rows.length, 120)
  assert.strictEqual(new Set(rows.map(({ id }) => id)).size, rows.length)
  const lines = table.split("\n").filter((line) => /^\| (?!Row|-)/.test(line))
  assert.strictEqual(rows.length, lines.filter((line) => !line.startsWith("|---")).length)
  for (const { id, held } of rows) assert.match(held, /^`/, id)
})

it("when the hardening table cites a test, then it exists under that name", () => {
  const wrong = rows.flatMap(({ id, what, held }) =>
    [...held.matchAll(/`([^`]+)`(?: "([^"]+)")?/g)].flatMap(([, file = "", name]) => {
      const at = path.join(root, file)
      if (!existsSync(at)) return [`${id}: ${file}`]
      if (name === undefined) return /not tested|in part/.test(what) ? [] : [`${id}: ${file} without a name`]
      return readFileSync(at, "utf8").includes(name) ? [] : [`${id}: ${file} "${name}"`]
    })
  )
  assert.deepStrictEqual(wrong, [])
})
