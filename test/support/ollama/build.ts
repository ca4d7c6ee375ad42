/**
 * Builds the real model server from the Go module proxy, once per machine. 0.11.4 is the newest version whose module
 * has everything it needs; later ones leave their C++ headers, then their engine, out of it.
 */
import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { cp, mkdir, rm, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { Console, Effect, Schema } from "effect"
import { TestServerFailed } from "../servers/processes.ts"
import { cacheFolder, makeOnce } from "./cache.ts"

export const pinned = {
  module: "github.com/ollama/ollama",
  version: "v0.11.4",
  /** as go.sum has it: the Go command refuses a module that hashes to anything else */
  sums: [
    "github.com/ollama/ollama v0.11.4 h1:6xLYLEPTKtw6N20qQecyEL/rrBktPO4o5U05cnvkSmI=",
    "github.com/ollama/ollama v0.11.4/go.mod h1:9+1//yWPsDE2u+l1a5mpaKrYw4VdnSsRU3ioq5BvMms="
  ]
} as const

/** The oldest Go that its go.mod accepts. */
const oldestGo = [1, 24] as const

interface Ran {
  readonly ok: boolean
  readonly output: string
}

const run = (
  command: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {}
): Promise<Ran> =>
  new Promise((resolve) => {
    const child = spawn(command, args, {
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      env: { ...process.env, GOTOOLCHAIN: "local", GOFLAGS: "", GOWORK: "off", ...options.env },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let output = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (output += text))
    child.once("error", (error) => resolve({ ok: false, output: error.message }))
    child.once("close", (code) => resolve({ ok: code === 0, output }))
  })

/** Why this machine cannot build the server; undefined when it can. */
export const missing = async (): Promise<string | undefined> => {
  const { ok, output } = await run("go", ["env", "GOVERSION"])
  if (!ok) return "there is no Go on this machine"
  const [, major = "0", minor = "0"] = /^go(\d+)\.(\d+)/.exec(output) ?? []
  const [wantedMajor, wantedMinor] = oldestGo
  if (Number(major) < wantedMajor || (Number(major) === wantedMajor && Number(minor) < wantedMinor))
    return `Go ${major}.${minor} is too old: ${wantedMajor}.${wantedMinor} or newer is needed`
  const compiler = await run("g++", ["--version"])
  return compiler.ok ? undefined : "there is no C++ compiler (g++) on this machine"
}

/** Without these the server multiplies matrices one number at a time. */
const instructionSets = ["avx2", "fma", "f16c"]

const compilerFlags = (): ReadonlyArray<string> => {
  if (process.arch !== "x64" || !existsSync("/proc/cpuinfo")) return ["-O1"]
  const flags = new Set(/^flags\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1]?.split(" "))
  return instructionSets.every((name) => flags.has(name))
    ? ["-O1", ...instructionSets.map((name) => `-m${name}`)]
    : ["-O1"]
}

const Download = Schema.fromJsonString(Schema.Struct({ Dir: Schema.String, Sum: Schema.String }))

/** The module's sources, in the Go module cache, checked against `pinned.sums`. */
const download = async (folder: string): Promise<string> => {
  const requiring = path.join(folder, "requiring")
  await mkdir(requiring)
  const { module, sums, version } = pinned
  await writeFile(path.join(requiring, "go.mod"), `module pin\n\ngo 1.24\n\nrequire ${module} ${version}\n`)
  await writeFile(path.join(requiring, "go.sum"), `${sums.join("\n")}\n`)
  const { ok, output } = await run("go", ["mod", "download", "-json", module], { cwd: requiring })
  if (!ok) throw new Error(`the sources of the model server could not be had:\n${output.slice(-2000)}`)
  const { Dir, Sum } = Schema.decodeSync(Download)(output.slice(output.indexOf("{")))
  if (!sums[0].endsWith(` ${Sum}`)) throw new Error(`${module} ${version} hashes to ${Sum}`)
  return Dir
}

const build = async (folder: string): Promise<void> => {
  const sources = path.join(folder, "sources")
  // The module cache is read-only, and cgo wants to write next to its sources.
  await cp(await download(folder), sources, { recursive: true })
  await run("chmod", ["-R", "u+w", sources])
  const flags = compilerFlags().join(" ")
  const stamp = `-X ${pinned.module}/version.Version=${pinned.version.slice(1)}`
  const words = ["build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", `-s -w ${stamp}`]
  const { ok, output } = await run("nice", ["go", ...words, "-o", path.join(folder, "ollama"), "."], {
    cwd: sources,
    env: { CGO_ENABLED: "1", CGO_CFLAGS: flags, CGO_CXXFLAGS: flags }
  })
  if (!ok) throw new Error(`the model server could not be built:\n${output.slice(-4000)}`)
  await rm(sources, { recursive: true, force: true })
}

/** Where the binary is, or will be: builds for other instruction sets lie beside it. */
export const binaryPath = (): string => {
  const set = compilerFlags().length > 1 ? "avx2" : "plain"
  return path.join(cacheFolder(), `ollama-${pinned.version.slice(1)}-${process.arch}-${set}`, "ollama")
}

/** The binary of the pinned version; the first call on a machine builds it, which takes some minutes. */
export const buildOllama: Effect.Effect<string, TestServerFailed> = Effect.suspend(() => {
  const binary = binaryPath()
  return makeOnce(path.dirname(binary), (folder) =>
    Console.log(`building the real model server ${pinned.version}: some minutes, once on this machine`).pipe(
      Effect.andThen(
        Effect.tryPromise({
          try: () => build(folder),
          catch: (cause) =>
            new TestServerFailed({ detail: "the real model server could not be built", cause })
        })
      )
    )
  ).pipe(Effect.as(binary))
})
