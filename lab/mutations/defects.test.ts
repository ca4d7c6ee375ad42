import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { defects } from "./defects.ts"

it("when a file of the source changes, then each defect still has its place in it", () => {
  const lost = defects.filter(({ file, text }) => {
    const source = readFileSync(path.resolve(import.meta.dirname, "../../src", file), "utf8")
    return source.split(text).length !== 2
  })
  assert.deepStrictEqual(
    lost.map(({ what }) => what),
    []
  )
})
