/**
 * One Postgres server as a child process that ends with this process.
 *
 * *Details* Postgres refuses to run as root. Root runs it as an unprivileged user, or, when only root can enter a folder above
 * the data, in a user namespace. The server has its own session, so that Ctrl-C for the gateway does not stop the
 * database while requests are being settled.
 *
 * *Gotchas* `setpriv --pdeathsig` fires when the *thread* that spawned the child ends, so servers must be started from the
 * main thread. Without setpriv, a shell that waits for the end of a pipe does it.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { Data, Deferred, Effect, Option } from "effect"

/** The system user Postgres runs as. */
export type PostgresUser =
  | { readonly kind: "self" }
  | { readonly kind: "dropped"; readonly uid: number; readonly gid: number }
  | { readonly kind: "namespace" }

/** "nobody" on every Linux. It needs no new account. */
export const nobody = { kind: "dropped", uid: 65_534, gid: 65_534 } as const satisfies PostgresUser

/**
 * A user and a group of our own, without an account. No distribution assigns the numbers from 65,520 to 65,533, so no other
 * program runs with this number. Other services do run as "nobody".
 */
export const unshared = { kind: "dropped", uid: 65_529, gid: 65_529 } as const satisfies PostgresUser

/**
 * The user that runs `initdb` for `user`. `initdb` refuses a user without an account, so it runs as "nobody", in the group of
 * `user`. Other processes of "nobody" can neither enter a folder of that group nor inspect this process.
 */
export const initdbUser = (user: PostgresUser): PostgresUser =>
  user.kind === "dropped" ? { ...user, uid: nobody.uid } : user

/** `in-use`: another server uses the folder. `log` is the end of the output of the server. */
export class PostgresFailed extends Data.TaggedError("PostgresFailed")<{
  readonly reason: "in-use" | "exit" | "timeout" | "spawn"
  readonly program: string
  readonly log: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return `${this.program} failed (${this.reason}): ${this.log.trim()}`
  }
}

export interface PostgresProcess {
  /** of the postmaster itself */
  readonly pid: number
  /** completes when the server has ended, for any reason */
  readonly exited: Effect.Effect<void>
  /** stops the server and waits: fast shutdown, after 10 s immediate shutdown, then SIGKILL */
  readonly stop: Effect.Effect<void>
}

const works = (command: string, args: ReadonlyArray<string>): boolean =>
  spawnSync(command, args, { stdio: "ignore", timeout: 5000 }).status === 0

let deathSignal: boolean | undefined
const hasDeathSignal = (): boolean =>
  (deathSignal ??= process.platform === "linux" && works("setpriv", ["--pdeathsig", "INT", "true"]))

const namespaceArguments = ["--user", "--map-user=1000", "--map-group=1000"]

/** Whether root may make user namespaces here. */
export const hasNamespaces = (): boolean =>
  process.platform === "linux" && works("unshare", [...namespaceArguments, "true"])

const launch = (user: PostgresUser, tied: boolean, program: string, args: ReadonlyArray<string>) => {
  const commandLine = [program, ...args]
  const setpriv = [
    ...(user.kind === "dropped" ? [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--clear-groups"] : []),
    ...(tied ? ["--pdeathsig", "INT"] : [])
  ]
  // setpriv changes the user first and sets the signal last: a change of user would clear the signal.
  if (tied) commandLine.unshift("setpriv", ...setpriv)
  if (user.kind === "namespace") commandLine.unshift("unshare", ...namespaceArguments)
  const [command = program, ...rest] = commandLine
  return {
    command,
    args: rest,
    ids: user.kind === "dropped" && !tied ? { uid: user.uid, gid: user.gid } : {}
  }
}

const environment = (home: string) => ({
  PATH: process.env["PATH"] ?? "/usr/bin:/bin",
  LC_ALL: "C",
  HOME: home,
  TZ: "UTC"
})

const keepTail = (child: ChildProcess, onText: (log: string) => void) => {
  let log = ""
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log = (log + text).slice(-8192)
    onText(log)
  })
  return () => log
}

/** Runs a program of Postgres to its end, within 60 s. */
export const runPostgresProgram = (options: {
  readonly user: PostgresUser
  readonly program: string
  readonly args: ReadonlyArray<string>
  /** its working folder and HOME */
  readonly folder: string
}): Effect.Effect<void, PostgresFailed> =>
  Effect.callback<void, PostgresFailed>((resume) => {
    const how = launch(options.user, hasDeathSignal(), options.program, options.args)
    const child = spawn(how.command, how.args, {
      ...how.ids,
      env: environment(options.folder),
      cwd: options.folder,
      detached: true,
      stdio: ["ignore", "ignore", "pipe"]
    })
    const log = keepTail(child, () => {})
    const fail = (reason: "exit" | "spawn", cause: unknown) =>
      resume(Effect.fail(new PostgresFailed({ reason, program: options.program, log: log(), cause })))
    child.once("error", (cause) => fail("spawn", cause))
    child.once("close", (code, signal) => (code === 0 ? resume(Effect.void) : fail("exit", { code, signal })))
    return Effect.sync(() => child.kill("SIGKILL"))
  }).pipe(
    Effect.timeoutOrElse({
      duration: "60 seconds",
      orElse: () =>
        Effect.fail(
          new PostgresFailed({ reason: "timeout", program: options.program, log: "no end in 60 s" })
        )
    })
  )

/** Interrupts `pid` when the pipe to this process ends. The kernel closes the pipe even on SIGKILL. */
const watch = (pid: number): ChildProcess =>
  spawn("sh", ["-c", 'while read -r _; do :; done; kill -INT "$1"', "sh", String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"]
  })

const occupied = /lock file "postmaster\.pid" already exists|pre-existing shared memory block/

/** Starts `bin/postgres` and waits until it accepts connections, at most 60 s (it may be recovering). */
export const startPostgres = Effect.fnUntraced(function* (options: {
  readonly user: PostgresUser
  /** the folder that holds `bin` */
  readonly native: string
  readonly dataDir: string
  /** socket folder and further switches, as `postgres` takes them */
  readonly args: ReadonlyArray<string>
}) {
  const program = `${options.native}/bin/postgres`
  const gone = yield* Deferred.make<void>()
  const tied = hasDeathSignal()
  const child = yield* Effect.callback<ChildProcess, PostgresFailed>((resume) => {
    const how = launch(options.user, tied, program, ["-D", options.dataDir, ...options.args])
    const child = spawn(how.command, how.args, {
      ...how.ids,
      env: environment(options.dataDir),
      cwd: options.dataDir,
      detached: true,
      stdio: ["ignore", "ignore", "pipe"]
    })
    const log = keepTail(child, (text) => {
      if (text.includes("ready to accept connections")) resume(Effect.succeed(child))
    })
    child.once("error", (cause) =>
      resume(Effect.fail(new PostgresFailed({ reason: "spawn", program, log: log(), cause })))
    )
    child.once("close", (code, signal) => {
      Deferred.doneUnsafe(gone, Effect.void)
      const reason = occupied.test(log()) ? "in-use" : "exit"
      resume(Effect.fail(new PostgresFailed({ reason, program, log: log(), cause: { code, signal } })))
    })
    return Effect.sync(() => child.kill("SIGKILL"))
  }).pipe(
    Effect.timeoutOrElse({
      duration: "60 seconds",
      orElse: () => Effect.fail(new PostgresFailed({ reason: "timeout", program, log: "not ready in 60 s" }))
    })
  )
  const watcher = tied || child.pid === undefined ? undefined : watch(child.pid)
  // The watcher must not keep this process alive; `stop` waits for the server.
  watcher?.unref()
  watcher?.on("error", () => child.kill("SIGINT"))
  const exited = Deferred.await(gone)
  const send = (signal: NodeJS.Signals) => Effect.sync(() => child.kill(signal))
  /** Sends a signal. Returns whether the server ended within `ms`. */
  const within = (signal: NodeJS.Signals, ms: number): Effect.Effect<boolean> =>
    Effect.andThen(send(signal), Effect.map(Effect.timeoutOption(exited, ms), Option.isSome))
  const stop = Effect.gen(function* () {
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = (yield* within("SIGINT", 10_000)) || (yield* within("SIGQUIT", 3000))
    if (!gone) yield* within("SIGKILL", 3000)
  }).pipe(Effect.ensuring(Effect.sync(() => watcher?.kill("SIGKILL"))))
  const handle: PostgresProcess = { pid: child.pid ?? 0, exited, stop }
  return handle
})
