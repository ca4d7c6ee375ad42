import { spawnSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"

describe("the compiler", () => {
  it(
    "when the project is compiled, then it is accepted, and every mistake in forgeries.ts is refused",
    { timeout: 120_000 },
    () => {
      const found = spawnSync("effect-tsgo", ["get-exe-path"], { encoding: "utf8" })
      assert.strictEqual(found.status, 0, found.stderr)
      const compiled = spawnSync(found.stdout.trim(), ["-p", ".", "--noEmit"], { encoding: "utf8" })
      assert.strictEqual(compiled.status, 0, compiled.stdout)
    }
  )
})
