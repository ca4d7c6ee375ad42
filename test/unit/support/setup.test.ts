import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { afterEachTest, counted } from "../../support/checks.ts"
import { isTestName } from "../../support/testNames.ts"

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

it("when a test has a name, then it is 'when …, then …', and its suite may have the first half", () => {
  for (const name of [
    "when a key is revoked, then it is refused",
    "the key store > when a key is revoked, then it is refused",
    "when a key is revoked > then it is refused",
    "when the text is a > b, then it is kept"
  ]) {
    assert.isTrue(isTestName(name), name)
  }
  for (const name of [
    "refuses a revoked key",
    "the key store > then it is refused",
    "when a key is revoked",
    "when a key is revoked it is refused",
    "H01 when a key is revoked, then it is refused"
  ]) {
    assert.isFalse(isTestName(name), name)
  }
})
