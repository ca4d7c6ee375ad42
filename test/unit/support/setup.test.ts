import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { afterEachTest, counted } from "../../support/checks.ts"

let before = -1
let checked = 0
const check = async () => void checked++

it("when a test of any file begins, then what is registered is checked at its end", () => {
  before = counted.tests
  afterEachTest.add(check)
})

it("when the next test begins, then the one before was checked once", () => {
  afterEachTest.delete(check)
  assert.strictEqual(counted.tests, before + 1)
  assert.strictEqual(checked, 1)
})

it("when files share a process, then no module but setup.ts registers a hook when it is imported", () => {
  const support = path.resolve(import.meta.dirname, "../../support")
  const hooks = /\b(?:beforeEach|afterEach|beforeAll|afterAll)\b/
  const registering = readdirSync(support, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .filter((name) => hooks.test(readFileSync(path.join(support, name), "utf8")))
  assert.deepStrictEqual(registering, ["setup.ts"])
})
