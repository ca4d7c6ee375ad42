/**
 * `npm run package -- --out dist`: the npm package, tried out: it is packed, installed into an empty folder, and its command is
 * run. Without `--out` nothing is kept.
 *
 * *Details* Node does not strip types below `node_modules`, so the package has JavaScript: the same lines with blanks where the
 * types were.
 */
import { spawnSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { parseArgs } from "node:util"
import { Schema } from "effect"

const root = path.resolve(import.meta.dirname, "../..")
const { out } = parseArgs({ options: { out: { type: "string" } } }).values

/** `import … from "./x.ts"`, `export … from` and `import("./x.ts")` */
const specifier = /((?:\bfrom|\bimport)\s*\(?\s*)"(\.{1,2}\/[^"]+)\.ts"/g

const build = (folder: string) => {
  for (const name of ["src", "playground/built", "cli", "migrations"]) {
    for (const file of readdirSync(path.join(root, name), { recursive: true, encoding: "utf8" })) {
      const from = path.join(root, name, file)
      const to = path.join(folder, name, file)
      mkdirSync(path.dirname(to), { recursive: true })
      if (file.endsWith(".ts")) {
        const code = stripTypeScriptTypes(readFileSync(from, "utf8")).replaceAll(specifier, '$1"$2.js"')
        writeFileSync(to.replace(/\.ts$/, ".js"), code)
      } else if (/\.\w+$/.test(file)) cpSync(from, to)
    }
  }
  const start = path.join(folder, "cli/tollgate.js")
  // The package is not bundled again: it has no esbuild.
  const [text, found] = [readFileSync(start, "utf8"), /const \{ entry \}[^]*$/]
  if (!found.test(text)) throw new Error("cli/tollgate.js has changed: look what it runs")
  writeFileSync(start, text.replace(found, 'await import("./main.js")\n'))
  for (const name of ["README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md"]) {
    cpSync(path.join(root, name), path.join(folder, name))
  }
  const manifest = Schema.decodeSync(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json)))(
    readFileSync(path.join(root, "package.json"), "utf8")
  )
  const own = new Set(["private", "scripts", "devDependencies", "allowScripts"])
  const kept = Object.entries(manifest).filter(([name]) => !own.has(name))
  writeFileSync(
    path.join(folder, "package.json"),
    `${JSON.stringify({ ...Object.fromEntries(kept), files: ["src", "playground", "cli", "migrations"] }, null, 2)}\n`
  )
}

const run = (folder: string, command: string, ...args: ReadonlyArray<string>): string => {
  const { error, status, stderr, stdout } = spawnSync(command, args, { cwd: folder, encoding: "utf8" })
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${error?.message ?? stderr}`)
  return stdout
}

const work = mkdtempSync(path.join(tmpdir(), "tgk-"))
try {
  const built = path.join(work, "package")
  build(built)
  const archive = run(built, "npm", "pack", "--silent", "--pack-destination", work).trim()
  const empty = path.join(work, "empty")
  mkdirSync(empty)
  writeFileSync(path.join(empty, "package.json"), "{}\n")
  run(empty, "npm", "install", "--no-audit", "--no-fund", path.join(work, archive))
  const version = run(empty, "npx", "tollgate", "--version").trim()
  const help = run(empty, "npx", "tollgate", "create-key", "--help")
  if (!/\d+\.\d+\.\d+/.test(version) || !help.includes("--expires-in")) throw new Error(`${version}\n${help}`)
  const files = readdirSync(built, { recursive: true }).length
  process.stdout.write(`${archive}: ${files} files; installed into an empty folder it says ${version}\n`)
  if (out !== undefined) {
    rmSync(path.resolve(out), { recursive: true, force: true })
    cpSync(built, path.resolve(out), { recursive: true })
  }
} finally {
  rmSync(work, { recursive: true, force: true })
}
