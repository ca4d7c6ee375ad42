/**
 * Vitest runs this file before each test file, also where files share a process: a hook that a shared module registers
 * is there for the first file only that imports the module.
 */
import { afterEach, assert, beforeEach } from "vitest"
import { afterEachTest, counted, expected } from "./checks.ts"
import { isTestName } from "./testNames.ts"

beforeEach(({ task }) => {
  assert(isTestName(task.fullTestName), `name this test "when …, then …": ${task.fullTestName}`)
})

afterEach(async () => {
  counted.tests++
  try {
    for (const check of afterEachTest) await check()
  } finally {
    expected.repairs = false
  }
})
