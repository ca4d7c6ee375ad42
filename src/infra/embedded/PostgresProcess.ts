/**
 * One Postgres server as a child process that ends with this process, also when this one is killed. The server has its own
 * session, so that Ctrl-C for the gateway does not stop the database while requests are being settled.
 *
 * *Gotchas* `setpriv --pdeathsig` fires when the *thread* that spawned the child ends, so servers must be started from the
 * main thread. Without setpriv (macOS), a shell that waits for the end of a pipe does it.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as path from "node:path"
import { Data, Effect, Option } from "effect"
import { codeOf } from "../errorCode.ts"

export interface PostgresBinaries {
  /** the folder with `bin/initdb` and `bin/postgres` */
  readonly native: string
  /** a folder with further libraries */
  readonly libraries?: string
}

/** Whom root runs Postgres as, because Postgres refuses to run as root. */
export interface PostgresUser {
  readonly uid: number
  readonly gid: number
  /** whether it keeps root's right to read and write past the permissions of files, because it cannot reach its own otherwise */
  readonly entersAll: boolean
}

/** `in-use`: another server uses the folder. `detail` is for the terminal. */
export class PostgresFailed extends Data.TaggedError("PostgresFailed")<{
  readonly reason: "in-use" | "unusable" | "exit" | "timeout" | "spawn"
  readonly detail: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return this.detail
  }
}

/** The folder or a program cannot be used. */
export const unusable = (detail: string) => (cause?: unknown) => {
  const code = codeOf(cause)
  return new PostgresFailed({
    reason: "unusable",
    detail: code === undefined ? detail : `${detail} (${code})`,
    cause
  })
}

/** Fails with `detail` when there is no outcome within a minute. */
const withinMinute = (detail: string) =>
  Effect.timeoutOrElse({
    duration: "60 seconds",
    orElse: () => new PostgresFailed({ reason: "timeout", detail })
  })

export interface PostgresProcess {
  /** of the postmaster itself */
  readonly pid: number
  /** completes when the server has ended, for any reason */
  readonly exited: Effect.Effect<void>
  /** stops the server and waits: fast shutdown, after 10 s immediate shutdown, then SIGKILL */
  readonly stop: Effect.Effect<void>
}

interface Program {
  /** undefined: the user of this process */
  readonly user: PostgresUser | undefined
  readonly binaries: PostgresBinaries
  /** its working folder and HOME */
  readonly folder: string
  readonly args: ReadonlyArray<string>
}

let found: boolean | undefined
/** Whether util-linux' setpriv is there. */
export const hasSetpriv = (): boolean =>
  (found ??= spawnSync("setpriv", ["--pdeathsig", "INT", "true"], { stdio: "ignore" }).status === 0)

/** Without `no_setuid_fixup` the capability does not count in `access(2)`, which Postgres asks whether it may run its programs. */
const keepingAccess = [
  "--securebits=+no_setuid_fixup",
  "--inh-caps=+dac_override",
  "--ambient-caps=+dac_override"
]

/** setpriv changes the user first and sets the signal last: a change of user would clear the signal. */
const setprivFor = (user: PostgresUser | undefined): ReadonlyArray<string> => [
  "setpriv",
  ...(user === undefined ? [] : [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--clear-groups"]),
  ...(user?.entersAll === true ? keepingAccess : []),
  "--pdeathsig",
  "INT"
]

/** Spawns a program and keeps the end of what it says. */
const launch = (name: "initdb" | "postgres", { args, binaries, folder, user }: Program) => {
  const { libraries, native } = binaries
  // A library that is found by a link looks for others beside the link.
  const searched = libraries === undefined ? "" : `${libraries}:${native}/lib`
  const words = [...(hasSetpriv() ? setprivFor(user) : []), path.join(native, "bin", name), ...args]
  const [command = "", ...rest] = words
  const child = spawn(command, rest, {
    env: {
      PATH: process.env["PATH"] ?? "/usr/bin:/bin",
      LC_ALL: "C",
      HOME: folder,
      TZ: "UTC",
      [process.platform === "darwin" ? "DYLD_LIBRARY_PATH" : "LD_LIBRARY_PATH"]: searched
    },
    cwd: folder,
    detached: true,
    stdio: ["ignore", "ignore", "pipe"]
  })
  let said = ""
  child.stderr.setEncoding("utf8").on("data", (text: string) => void (said = (said + text).slice(-8192)))
  const failed = (reason: PostgresFailed["reason"], cause?: unknown) =>
    new PostgresFailed({ reason, detail: `${name} failed (${reason}): ${said.trim()}`, cause })
  return { child, failed, said: () => said }
}

/** Runs initdb to its end, within 60 s. */
export const runInitdb = (program: Program): Effect.Effect<void, PostgresFailed> =>
  Effect.callback<void, PostgresFailed>((resume) => {
    const { child, failed } = launch("initdb", program)
    child.once("error", (cause) => resume(failed("spawn", cause)))
    child.once("close", (code) => resume(code === 0 ? Effect.void : failed("exit")))
    return Effect.sync(() => child.kill("SIGKILL"))
  }).pipe(withinMinute("initdb did not end in 60 s"))

/** Interrupts `pid` when the pipe to this process ends. The kernel closes the pipe even on SIGKILL. */
const watch = (pid: number): ChildProcess =>
  spawn("sh", ["-c", 'while read -r _; do :; done; kill -INT "$1"', "sh", String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"]
  })

const occupied = /lock file "[^"]*" already exists|pre-existing shared memory block/

/** Starts the server on `folder` and waits until it accepts connections, at most 60 s (it may be recovering). */
export const startPostgres = Effect.fnUntraced(function* (
  program: Program
): Effect.fn.Return<PostgresProcess, PostgresFailed> {
  const child = yield* Effect.callback<ChildProcess, PostgresFailed>((resume) => {
    const { child, failed, said } = launch("postgres", {
      ...program,
      args: ["-D", program.folder, ...program.args]
    })
    child.stderr.on("data", () => {
      if (said().includes("ready to accept connections")) resume(Effect.succeed(child))
    })
    child.once("error", (cause) => resume(failed("spawn", cause)))
    child.once("close", () => resume(failed(occupied.test(said()) ? "in-use" : "exit")))
    return Effect.sync(() => child.kill("SIGKILL"))
  }).pipe(withinMinute("postgres was not ready in 60 s"))
  const pid = child.pid ?? 0
  const watcher = hasSetpriv() ? undefined : watch(pid)
  // The watcher must not keep this process alive; `stop` waits for the server.
  watcher?.unref()
  watcher?.on("error", () => child.kill("SIGINT"))
  const exited = Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    const end = () => resume(Effect.void)
    child.once("exit", end)
    return Effect.sync(() => child.off("exit", end))
  })
  /** Whether the server ends within `ms` after a signal. */
  const endsBy = (signal: NodeJS.Signals, ms: number): Effect.Effect<boolean> =>
    Effect.suspend(() => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal)
      return Effect.map(Effect.timeoutOption(exited, ms), Option.isSome)
    })
  const stop = Effect.gen(function* () {
    if ((yield* endsBy("SIGINT", 10_000)) || (yield* endsBy("SIGQUIT", 3000))) return
    yield* endsBy("SIGKILL", 3000)
  }).pipe(Effect.ensuring(Effect.sync(() => watcher?.kill("SIGKILL"))))
  return { pid, exited, stop }
})
