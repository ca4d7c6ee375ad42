/**
 * Vitest runs this file before each test file, also where files share a process: a hook that a shared module registers
 * is there for the first file only that imports the module.
 */
import { afterEach } from "vitest"
import { afterEachTest, counted } from "./checks.ts"

afterEach(async () => {
  counted.tests++
  for (const check of afterEachTest) await check()
})
