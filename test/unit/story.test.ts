/** CONTRIBUTING tells the way of a request: the files are there, and there are few enough to read in one go. */
import { existsSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"

const root = path.resolve(import.meta.dirname, "../..")
const most = 30

it("when a streamed chat is followed from its route to its last frame, then at most 30 files are read", () => {
  const guide = readFileSync(path.join(root, "CONTRIBUTING.md"), "utf8")
  const section = /\n## The way of a request\n([^]*?)\n## /.exec(guide)?.[1] ?? ""
  const files = [...section.matchAll(/`(src\/[\w/.]+\.ts)`/g)].map((match) => match[1] ?? "")
  assert.strictEqual(new Set(files).size, files.length, "each file once")
  assert.deepStrictEqual(
    files.filter((file) => !existsSync(path.join(root, file))),
    []
  )
  assert.isAbove(files.length, 20)
  assert.isAtMost(files.length, most)
})
