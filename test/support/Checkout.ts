/** What a reader of the README has: a folder with the project in it, a shell, and `npm start` running. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { cpSync } from "node:fs"
import * as path from "node:path"
import { Data, Effect, Option, Schedule, type Scope } from "effect"
import { maxWaitMs } from "./wait.ts"
import { temporaryFolder } from "./temporaryFolder.ts"

export class CheckoutFailed extends Data.TaggedError("CheckoutFailed")<{ readonly message: string }> {}

export const root = path.resolve(import.meta.dirname, "../..")

/** What a checkout does not have of itself. */
const foreign = new Set([".git", ".tollgate", "node_modules"])

/** The tree as it is now, with the packages that are installed: links to their files, or copies on another disk. */
export const checkout: Effect.Effect<string, CheckoutFailed, Scope.Scope> = Effect.gen(function* () {
  const folder = path.join(yield* temporaryFolder, "tollgate")
  cpSync(root, folder, {
    recursive: true,
    filter: (from) => !foreign.has(path.relative(root, from))
  })
  const link = (how: string) =>
    spawnSync("cp", [how, path.join(root, "node_modules"), path.join(folder, "node_modules")]).status === 0
  if (!link("-al") && !link("-a"))
    return yield* new CheckoutFailed({ message: "node_modules cannot be copied" })
  return folder
})

/** A fresh `git clone` of what is committed, without packages. */
export const clone: Effect.Effect<string, CheckoutFailed, Scope.Scope> = Effect.gen(function* () {
  const folder = path.join(yield* temporaryFolder, "tollgate")
  const { status, stderr } = spawnSync("git", ["clone", "--quiet", root, folder], { encoding: "utf8" })
  return status === 0 ? folder : yield* new CheckoutFailed({ message: stderr })
})

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export type Environment = Readonly<Record<string, string>>

/** The way to the network is this machine's own; npm's is under its own names, but not what `npm run` adds. */
const ways =
  /^(?:NODE_EXTRA_CA_CERTS|SSL_CERT_\w+|(?:https?|no)_proxy|npm_config_(?:registry|cafile|cache))$/i

/** A person's environment: none of the settings of whoever runs the tests. */
const bare = (env: Environment) => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => ways.test(name))),
  PATH: process.env["PATH"],
  HOME: process.env["HOME"],
  TERM: "dumb",
  ...env
})

/** One line of shell in `folder`, as it was typed. */
export const shell = (folder: string, line: string, env: Environment = {}): Effect.Effect<Ran> =>
  Effect.callback<Ran>((resume) => {
    const child = spawn("bash", ["-c", line], {
      cwd: folder,
      env: bare(env),
      stdio: ["ignore", "pipe", "pipe"]
    })
    const said = { stdout: "", stderr: "" }
    child.stdout.setEncoding("utf8").on("data", (text: string) => (said.stdout += text))
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said.stderr += text))
    child.on("close", (code) => resume(Effect.succeed({ code, ...said })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
  })

/** To npm, to what it started, and to what that started: as Ctrl-C at a terminal does. */
const signal = (child: ChildProcess, name: NodeJS.Signals) =>
  Effect.sync(
    () =>
      void (child.pid === undefined
        ? undefined
        : spawnSync("kill", ["-s", name.slice(3), "--", `-${child.pid}`]))
  )

export interface Started {
  /** everything that was printed until it was ready, colours and all */
  readonly said: string
  readonly url: string
  readonly key: string
}

const facts = (said: string) => ({
  url: /listening on (http:\S+)/.exec(said)?.[1] ?? "",
  key: /\b(tg_[0-9A-Za-z]{41})\b/.exec(said)?.[1] ?? ""
})

/** `npm start` until the last of its lines to try it with is there; stopped with Ctrl-C. */
export const npmStart = (
  folder: string,
  env: Environment = {}
): Effect.Effect<Started, CheckoutFailed, Scope.Scope> =>
  Effect.gen(function* () {
    let said = ""
    const child = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const child = spawn("npm", ["start"], {
          cwd: folder,
          env: bare(env),
          detached: true,
          stdio: ["ignore", "pipe", "pipe"]
        })
        for (const stream of [child.stdout, child.stderr])
          stream.setEncoding("utf8").on("data", (text: string) => (said += text))
        return child
      }),
      (child) =>
        Effect.andThen(signal(child, "SIGINT"), ended(child)).pipe(
          Effect.timeoutOrElse({ duration: maxWaitMs, orElse: () => signal(child, "SIGKILL") })
        )
    )
    const up = yield* Effect.sync(() => said).pipe(
      Effect.repeat({
        schedule: Schedule.spaced("50 millis"),
        until: (text) => text.includes("npx node --input-type=module") || child.exitCode !== null
      }),
      Effect.timeoutOption(maxWaitMs)
    )
    const { key, url } = facts(said)
    if (Option.isNone(up) || key === "" || url === "")
      return yield* new CheckoutFailed({ message: `npm start did not come up:\n${said}` })
    return { said, url, key }
  })
