/** The workflows name scripts that exist, actions by commit, and as few rights as they need; `npm run lint:deploy` runs actionlint. */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import { changesOf, namedVersions } from "../../deploy/tools/release.ts"

const root = path.resolve(import.meta.dirname, "../..")
const folder = path.join(root, ".github/workflows")
const workflows = readdirSync(folder).map((name) => ({
  name,
  text: readFileSync(path.join(folder, name), "utf8")
}))

const Package = Schema.fromJsonString(
  Schema.Struct({
    version: Schema.String,
    scripts: Schema.Record(Schema.String, Schema.String),
    devDependencies: Schema.Record(Schema.String, Schema.String)
  })
)
const own = Schema.decodeSync(Package)(readFileSync(path.join(root, "package.json"), "utf8"))

it("when a workflow runs a script or a file of ours, then it exists", () => {
  const named = workflows.flatMap(({ text }) => [...text.matchAll(/\bnpm (?:run )?([a-z][\w:-]*)/g)])
  const builtIn = new Set(["ci", "publish"])
  const scripts = named.map((match) => match[1] ?? "").filter((name) => !builtIn.has(name))
  assert.includeMembers(scripts, ["test", "types", "lint:deploy", "package"])
  assert.deepStrictEqual(
    scripts.filter((name) => !Object.hasOwn(own.scripts, name)),
    []
  )
  const files = workflows.flatMap(({ text }) =>
    [...text.matchAll(/(?<=\s)(?:test|deploy)\/[\w./-]+|(?<=cp )\.env\.example/g)].map(String)
  )
  assert.isAtLeast(files.length, 3)
  assert.deepStrictEqual(
    files.filter((file) => !existsSync(path.join(root, file))),
    []
  )
  const tools = workflows.flatMap(({ text }) =>
    [...text.matchAll(/npx ([a-z]\w+)/g)].map((match) => match[1])
  )
  for (const tool of tools) {
    assert.isTrue(tool === "tollgate" || Object.hasOwn(own.devDependencies, tool ?? ""), tool)
  }
})

it("when a workflow uses an action, then by the commit of a release, which a comment names", () => {
  const uses = workflows.flatMap(({ text }) =>
    [...text.matchAll(/uses: (.*)$/gm)].map((match) => match[1] ?? "")
  )
  assert.isAtLeast(uses.length, 10)
  for (const use of uses) assert.match(use, /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/)
  const versions = new Map<string, string>()
  for (const use of uses) {
    const [action = "", commit = ""] = use.split("@")
    assert.strictEqual(versions.get(action) ?? commit, commit, action)
    versions.set(action, commit)
  }
})

it("when a workflow runs, then it may only read, but where a job says what it writes; a checkout keeps no token", () => {
  for (const { name, text } of workflows) {
    assert.match(text, /^permissions: \{ contents: read \}$/m, name)
    assert.notMatch(text, /pull_request_target|write-all/, name)
    const checkouts = text.split("actions/checkout@").slice(1)
    // The last job of a release writes with the token of its own step.
    for (const after of checkouts) assert.match(after, /^.*\n\s+with: \{.*persist-credentials: false/, name)
    // What others may name (a branch, a title) never stands in a script.
    for (const [run] of text.matchAll(/^\s+(?:- )?run: (?:\|\n(?:\s{8,}.*\n)+|.*\n)/gm)) {
      assert.notMatch(run, /\$\{\{/, `${name}: ${run}`)
    }
  }
})

it("when a version is released, then every file names it, and the CHANGELOG has its section", () => {
  for (const [file, named] of Object.entries(namedVersions())) assert.strictEqual(named, own.version, file)
  assert.isAbove(changesOf(own.version)?.length ?? 0, 500)
  assert.isUndefined(changesOf("0.0.1"))
})
