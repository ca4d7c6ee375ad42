/** A real redis-server for tests, on a free port of 127.0.0.1, thrown away with its scope. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { connect } from "node:net"
import { Deferred, Effect, Schedule } from "effect"
import type { Scope } from "effect/Scope"
import { freePort, signalTree, TestServerFailed } from "./processes.ts"
import type { RedisBinary } from "./RedisBinary.ts"
import { maxWaitMs } from "../wait.ts"
import { temporaryFolder } from "../temporaryFolder.ts"

export interface RedisServer {
  readonly port: number
  /** what a child process takes as REDIS_URL */
  readonly url: string
  /** clean end; nothing is kept */
  readonly stop: Effect.Effect<void>
  /** SIGKILL */
  readonly kill: Effect.Effect<void>
  /** SIGSTOP: connections stay open, and nothing answers */
  readonly pause: Effect.Effect<void>
  readonly resume: Effect.Effect<void>
  /** starts it again, empty, on the same port */
  readonly start: Effect.Effect<void, TestServerFailed>
}

/** In front of a command: it ends when whoever started it does, however that comes. */
export const tied: ReadonlyArray<string> =
  spawnSync("setpriv", ["--pdeathsig", "TERM", "true"], { stdio: "ignore" }).status === 0
    ? ["setpriv", "--pdeathsig", "TERM"]
    : []

const answers = (port: number): Effect.Effect<void, TestServerFailed> =>
  Effect.callback<void, TestServerFailed>((resume) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"))
    socket.once("data", () => {
      socket.destroy()
      resume(Effect.void)
    })
    socket.once("error", (cause) =>
      resume(Effect.fail(new TestServerFailed({ detail: "redis-server does not answer", cause })))
    )
    return Effect.sync(() => socket.destroy())
  })

export const makeRedisServer = Effect.fnUntraced(function* (
  binary: RedisBinary,
  /** further words of redis-server's command line */
  extra: ReadonlyArray<string> = []
): Effect.fn.Return<RedisServer, TestServerFailed, Scope> {
  const folder = yield* temporaryFolder
  const port = yield* freePort
  const words = [
    ...tied,
    binary.command,
    "--port",
    String(port),
    "--bind",
    "127.0.0.1",
    "--dir",
    folder,
    "--save",
    "",
    "--appendonly",
    "no",
    "--databases",
    "4096",
    "--maxmemory-policy",
    "noeviction",
    "--loglevel",
    "warning",
    ...extra
  ]
  let running:
    | { readonly child: ChildProcess; readonly pid: number; readonly gone: Deferred.Deferred<void> }
    | undefined
  const start = Effect.gen(function* () {
    const gone = yield* Deferred.make<void>()
    const [command = binary.command, ...args] = words
    const child = spawn(command, args, {
      env: { ...process.env, LD_LIBRARY_PATH: binary.libraries },
      detached: true,
      stdio: "ignore"
    })
    child.once("close", () => Deferred.doneUnsafe(gone, Effect.void))
    child.once("error", () => Deferred.doneUnsafe(gone, Effect.void))
    running = { child, pid: child.pid ?? 0, gone }
    yield* answers(port).pipe(
      Effect.retry(Schedule.spaced("5 millis")),
      Effect.raceFirst(
        Effect.andThen(
          Deferred.await(gone),
          Effect.fail(new TestServerFailed({ detail: `redis-server ended: ${words.join(" ")}` }))
        )
      ),
      Effect.timeout(maxWaitMs),
      Effect.mapError((cause) => new TestServerFailed({ detail: "redis-server did not start", cause }))
    )
  })
  const whenRunning = (act: (pid: number, gone: Effect.Effect<void>) => Effect.Effect<void>) =>
    Effect.suspend(() =>
      running === undefined || running.child.exitCode !== null || running.child.signalCode !== null
        ? Effect.void
        : act(running.pid, Deferred.await(running.gone))
    )
  const resume = whenRunning((pid) => signalTree(pid, "SIGCONT"))
  const kill = whenRunning((pid, gone) => Effect.andThen(signalTree(pid, "SIGKILL"), gone))
  yield* Effect.acquireRelease(start, () => kill)
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    stop: whenRunning((pid, gone) => Effect.andThen(signalTree(pid, "SIGTERM"), gone)),
    kill,
    pause: whenRunning((pid) => signalTree(pid, "SIGSTOP")),
    resume,
    start
  }
})
