/** The gateway on memory twins, as the guide shows it to testers. */
import { execFileSync } from "node:child_process"
import { readFileSync, rmSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"

const root = path.resolve(import.meta.dirname, "../..")

it("when a tester runs the guide's script, then the gateway in memory answers", () => {
  const [, script] =
    /```ts\n([\s\S]*?layerInMemory[\s\S]*?)```/.exec(readFileSync(path.join(root, "docs/run.md"), "utf8")) ??
    []
  assert.isDefined(script)
  const file = path.join(root, `.readme-${process.pid}.ts`)
  writeFileSync(file, script ?? "")
  try {
    const output = execFileSync(process.execPath, [file], { cwd: root, encoding: "utf8" })
    assert.match(output, /^200 \{.*"content":"Hello world".*"done":true/m)
  } finally {
    rmSync(file)
  }
})
