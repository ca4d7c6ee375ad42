/** The bundle that `npm start` and the image run (`build/`), on copies of this folder. */
import { spawn, spawnSync } from "node:child_process"
import { appendFileSync, cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { exitOf } from "../support/Image.ts"
import { testWith } from "../support/testWith.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const root = path.resolve(import.meta.dirname, "../..")

/** A copy of the sources with all packages but `without`. */
const copy = (without: ReadonlyArray<string> = []) =>
  Effect.map(temporaryFolder, (folder) => {
    for (const name of [
      "package.json",
      "package-lock.json",
      "build",
      "cli",
      "migrations",
      "playground",
      "src"
    ])
      cpSync(path.join(root, name), path.join(folder, name), { recursive: true })
    mkdirSync(path.join(folder, "node_modules"))
    for (const name of readdirSync(path.join(root, "node_modules"))) {
      if (!without.includes(name))
        symlinkSync(path.join(root, "node_modules", name), path.join(folder, "node_modules", name))
    }
    return folder
  })

const node = (folder: string, file: string) =>
  spawnSync(process.execPath, [file], { cwd: folder, encoding: "utf8", env: { NODE_ENV: "production" } })

const builds = (folder: string) => readdirSync(path.join(folder, "bundle"))

const test = testWith(it.live)

test("when a source changes, then it is built again, and two builds are kept", function* () {
  const folder = yield* copy()
  assert.strictEqual(node(folder, "build/build.ts").status, 0)
  const [first] = builds(folder)
  assert.strictEqual(node(folder, "build/build.ts").status, 0)
  assert.deepStrictEqual(builds(folder), [first], "nothing has changed")
  for (const line of ["// one", "// two"]) {
    appendFileSync(path.join(folder, "src/version.ts"), `${line}\n`)
    assert.strictEqual(node(folder, "build/build.ts").status, 0)
  }
  assert.lengthOf(builds(folder), 2)
  assert.notInclude(builds(folder), first)
})

test("when two processes start at once, then both run, and there is one whole build", function* () {
  const folder = yield* copy()
  const children = ["build/start.js", "build/start.js"].map((file) =>
    spawn(process.execPath, [file], { cwd: folder, env: { NODE_ENV: "production" }, stdio: "ignore" })
  )
  // Without settings it ends with 78, after everything is loaded.
  assert.deepStrictEqual(yield* Effect.forEach(children, exitOf), [78, 78])
  assert.lengthOf(builds(folder), 1)
})

test("when it cannot be built, then it runs from its sources and says so once", function* () {
  const folder = yield* copy(["esbuild"])
  const { status, stderr } = node(folder, "build/start.js")
  assert.strictEqual(status, 78, stderr)
  assert.match(stderr, /^tollgate: not built, so it runs from its sources and takes more memory: .*esbuild/)
})

test("when it is built, then every file beside a source is still found", function* () {
  const folder = yield* copy()
  assert.strictEqual(node(folder, "build/build.ts").status, 0)
  const [build = ""] = builds(folder)
  const code = readdirSync(path.join(folder, "bundle", build))
    .map((name) => readFileSync(path.join(folder, "bundle", build, name), "utf8"))
    .join("\n")
  const folders = [...code.matchAll(/import\.meta\.dirname\s*\+\s*"([^"]+)"/g)].map((match) => match[1] ?? "")
  assert.isNotEmpty(folders)
  for (const beside of folders)
    assert.isNotEmpty(readdirSync(path.join(folder, "bundle", build, beside)), beside)
})
