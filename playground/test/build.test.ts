/** What is in `playground/built` is what the sources make, and the page has no way to run what others wrote. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { buildPage } from "../build.ts"

const folder = path.resolve(import.meta.dirname, "..")
const read = (name: string) => readFileSync(path.join(folder, name), "utf8")

it("when a source of the page changes, then the built page does too: npm run playground", async () => {
  const built = readdirSync(path.join(folder, "built")).map((name) => [name, read(`built/${name}`)])
  assert.deepStrictEqual(Object.fromEntries(built), await buildPage())
})

const scripts = readdirSync(path.join(folder, "script"))
  .map((name) => read(`script/${name}`))
  .join("\n")

it("when the page stores something, then it is the theme and nothing else", () => {
  assert.deepStrictEqual(
    [...scripts.matchAll(/localStorage[^\n]*/g)].map(([use]) => use),
    ["localStorage.getItem(name)", "localStorage.setItem(name, theme)"]
  )
  assert.include(scripts, 'const name = "tollgate-theme"')
})

it("when the page shows something, then it never does as markup, and it keeps nothing elsewhere", () => {
  assert.notMatch(
    scripts + read("built/page.js"),
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|sessionStorage|indexedDB|\.cookie/
  )
})
