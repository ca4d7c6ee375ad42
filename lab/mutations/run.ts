/**
 * `node lab/mutations/run.ts`: puts defects into a copy of the source, one at a time, and looks for the first seed that
 * finds each. Exit code 1 when one is not found within the seeds (`--seeds 2000`), or when its text is not in its file.
 */
import { execFile } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { parseArgs, promisify } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { type Defect, defects } from "./defects.ts"

const root = path.resolve(import.meta.dirname, "../..")

const { values } = parseArgs({
  options: { seeds: { type: "string", default: "2000" }, only: { type: "string", default: "" } }
})
const run = promisify(execFile)

const broken = /^seed (\d+), event (\d+): broken: "([^"]+)"/m

/** The first seed that breaks something. */
const play = (cwd: string, seeds: string) =>
  Effect.promise(() =>
    run(process.execPath, ["lab/simulation/run.ts", "--seeds", seeds, "--first"], {
      cwd,
      maxBuffer: 2 ** 26
    }).then(
      ({ stdout }) => stdout,
      (error: unknown) => (error instanceof Error && "stdout" in error ? String(error.stdout) : String(error))
    )
  ).pipe(Effect.map((output) => broken.exec(output) ?? []))

/** The first seed that breaks something with a defect and nothing without it. */
const findIn = Effect.fnUntraced(function* (copy: string) {
  for (let from = 1; from <= Number(values.seeds);) {
    const [, seed, event, invariant] = yield* play(copy, `${from}..${values.seeds}`)
    if (seed === undefined) return undefined
    const [without] = yield* play(root, `${seed}..${seed}`)
    if (without === undefined) return `seed ${seed}, event ${event}, "${invariant}"`
    from = Number(seed) + 1
  }
  return undefined
})

const tryOne = Effect.fnUntraced(function* ({ file, instead, text, what }: Defect) {
  const copy = mkdtempSync(path.join(tmpdir(), "tollgate-mutation-"))
  for (const part of ["src", "migrations", "lab/simulation", "test/support", "package.json"])
    cpSync(path.join(root, part), path.join(copy, part), { recursive: true })
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"))
  const mutated = path.join(copy, "src", file)
  const source = readFileSync(mutated, "utf8")
  writeFileSync(
    mutated,
    source.replace(text, () => instead)
  )
  const found = source.includes(text) ? yield* findIn(copy) : `its text is not in src/${file}`
  rmSync(copy, { recursive: true })
  yield* Console.log(`- ${what}: ${found ?? "not found"}`)
  return found?.startsWith("seed") === true
})

const main = Effect.gen(function* () {
  const chosen = defects.filter(({ what }) => values.only.split("|").some((part) => what.includes(part)))
  const found = yield* Effect.forEach(chosen, tryOne)
  yield* Console.log(`${found.filter(Boolean).length} of ${chosen.length} found within ${values.seeds} seeds`)
  if (found.includes(false)) process.exitCode = 1
})

NodeRuntime.runMain(main)
