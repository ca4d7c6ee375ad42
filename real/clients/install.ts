/** Puts the pinned clients into the cache folder: a virtual environment for each file of pins, and one `npm ci`. */
import { spawn, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { cpSync, readdirSync, readFileSync, rmSync } from "node:fs"
import * as path from "node:path"
import { Console, Effect } from "effect"
import { cacheFolder, makeOnce } from "../ollama/cache.ts"
import { type ClientScript, compiled } from "./catalogue.ts"
import { TestServerFailed } from "../../test/support/servers/processes.ts"

const here = import.meta.dirname

export const run = (
  command: string,
  args: ReadonlyArray<string>,
  cwd: string
): Effect.Effect<void, TestServerFailed> =>
  Effect.callback((resume) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] })
    let output = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (output = (output + text).slice(-4000)))
    const failed = (detail: string) =>
      resume(Effect.fail(new TestServerFailed({ detail: `${command} ${args.join(" ")}: ${detail}` })))
    child.once("error", (error) => failed(error.message))
    child.once("close", (code) => (code === 0 ? resume(Effect.void) : failed(output)))
    return Effect.sync(() => child.kill())
  })

export const keyed = (name: string, pins: string): string =>
  path.join(cacheFolder(), `clients-${name}-${createHash("sha256").update(pins).digest("hex").slice(0, 12)}`)

/** The Python of the environment. */
export const installPython = Effect.fnUntraced(function* (name: string) {
  const requirements = path.join(here, "python/requirements", `${name}.txt`)
  const folder = keyed(name, readFileSync(requirements, "utf8"))
  yield* makeOnce(folder, (unfinished) =>
    Console.log(`installing ${name} for Python`).pipe(
      Effect.andThen(run("python3", ["-m", "venv", "."], unfinished)),
      Effect.andThen(
        run(
          path.join(unfinished, "bin/python"),
          ["-m", "pip", "install", "--quiet", "--no-deps", "-r", requirements],
          unfinished
        )
      )
    )
  )
  return path.join(folder, "bin/python")
})

/** What the lock file in `source` says, without the scripts of packages but `scripts`. */
export const npmCi = Effect.fnUntraced(function* (
  name: string,
  source: string,
  scripts: ReadonlyArray<string> = []
) {
  const folder = keyed(name, readFileSync(path.join(source, "package-lock.json"), "utf8"))
  yield* makeOnce(folder, (unfinished) =>
    Effect.sync(() => {
      for (const file of ["package.json", "package-lock.json"])
        cpSync(path.join(source, file), path.join(unfinished, file))
    }).pipe(
      Effect.andThen(Console.log(`installing ${name} for Node`)),
      Effect.andThen(run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], unfinished)),
      Effect.andThen(
        Effect.forEach(scripts, (script) =>
          run(process.execPath, [path.join("node_modules", script)], unfinished)
        )
      ),
      Effect.asVoid
    )
  )
  return folder
})

/** The folder with `node_modules`; the scripts are copied beside it, since Node looks for packages there. */
const installNpm = Effect.fnUntraced(function* () {
  const folder = yield* npmCi("npm", path.join(here, "npm"))
  for (const name of readdirSync(path.join(here, "npm")).filter((file) => file.endsWith(".mjs")))
    cpSync(path.join(here, "npm", name), path.join(folder, name))
  return folder
})

/** They put the program of this platform, which is a package of its own, into its place. */
const agentScripts = ["@anthropic-ai/claude-code/install.cjs", "opencode-ai/postinstall.mjs"]

/** The folder of the commands of the coding agents. */
export const installAgents = Effect.fnUntraced(function* () {
  const folder = yield* npmCi("agents", path.join(here, "../agents"), agentScripts)
  return path.join(folder, "node_modules/.bin")
})

/** The files of a program, whatever folder they are in. */
export const sourcesOf = (folder: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .toSorted()

/** Builds a program in its cache folder, where `build` is given its sources. */
const compile = Effect.fnUntraced(function* (
  name: keyof typeof compiled,
  build: (folder: string) => Effect.Effect<void, TestServerFailed>
) {
  const sources = path.join(here, name)
  const folder = keyed(
    name,
    sourcesOf(sources)
      .map((file) => readFileSync(file, "utf8"))
      .join("\0")
  )
  yield* makeOnce(folder, (unfinished) =>
    Effect.sync(() => cpSync(sources, unfinished, { recursive: true })).pipe(
      Effect.andThen(Console.log(`building the clients in ${name}`)),
      Effect.andThen(build(unfinished))
    )
  )
  return folder
})

type Command = readonly [program: string, ...words: ReadonlyArray<string>]

/** The command that runs the clients of a language. */
const programs: Readonly<Record<keyof typeof compiled, Effect.Effect<Command, TestServerFailed>>> = {
  go: Effect.map(
    compile("go", (folder) => run("go", ["build", "-o", "clients", "."], folder)),
    (folder): Command => [path.join(folder, "clients")]
  ),
  rust: Effect.map(
    compile("rust", (folder) =>
      Effect.andThen(
        run("nice", ["cargo", "build", "--locked", "--target-dir", "target"], folder),
        Effect.sync(() => {
          cpSync(path.join(folder, "target/debug/tollgate-clients"), path.join(folder, "clients"))
          rmSync(path.join(folder, "target"), { recursive: true, force: true })
        })
      )
    ),
    (folder): Command => [path.join(folder, "clients")]
  ),
  java: Effect.map(
    compile("java", (folder) =>
      run("mvn", ["-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"], folder)
    ),
    (folder): Command => ["java", "-cp", `${folder}/target/classes:${folder}/lib/*`, "Matrix"]
  )
}

/** Whether the command that builds the client's program is on this machine. Python and Node always are. */
export const canBuild = ({ environment }: Pick<ClientScript, "environment">): boolean =>
  !isCompiled(environment) ||
  spawnSync("sh", ["-c", `command -v ${compiled[environment]}`], { stdio: "ignore" }).status === 0

const isCompiled = (environment: string): environment is keyof typeof compiled => environment in compiled

/** The command that runs `script` of `environment`. */
export const commandOf = Effect.fnUntraced(function* (
  environment: string,
  script: string
): Effect.fn.Return<Command, TestServerFailed> {
  if (isCompiled(environment)) return yield* programs[environment]
  if (environment === "npm") return [process.execPath, path.join(yield* installNpm(), script)]
  return [yield* installPython(environment), path.join(here, "python", script)]
})
