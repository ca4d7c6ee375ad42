import { spawnSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"

describe("the compiler", () => {
  it("when the project is compiled, then it is accepted, and every mistake in forgeries.ts is refused", () => {
    const compiled = spawnSync("npm", ["run", "--silent", "types"], { encoding: "utf8" })
    assert.strictEqual(compiled.status, 0, compiled.stdout + compiled.stderr)
  })
})
