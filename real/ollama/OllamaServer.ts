/** A real Ollama for tests, on a free port of 127.0.0.1, thrown away with its scope, runners included. */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Deferred, Effect, Schedule } from "effect"
import type { Scope } from "effect/Scope"
import { childrenOf, freePort, TestServerFailed } from "../../test/support/servers/processes.ts"
import { tied } from "../../test/support/servers/RedisServer.ts"

export interface OllamaServer {
  readonly url: URL
  /** of the main process; another one after `start` */
  readonly pid: () => number
  /** processes that hold a loaded model, one each */
  readonly runners: () => ReadonlyArray<number>
  /** the end of what it logged */
  readonly log: () => string
  /** clean stop, as an operator does it */
  readonly stop: Effect.Effect<void>
  /** SIGKILL to the server and its runners */
  readonly kill: Effect.Effect<void>
  /** starts it again on the same port, after `stop` or `kill` */
  readonly start: Effect.Effect<void, TestServerFailed>
}

export interface OllamaOptions {
  readonly binary: string
  /** OLLAMA_MODELS: its store of models */
  readonly models: string
  /** further environment: `OLLAMA_NUM_PARALLEL`, `OLLAMA_MAX_QUEUE` … */
  readonly env?: Readonly<Record<string, string>>
}

const keptLog = 64 * 1024

const signalGroup = (pid: number, name: NodeJS.Signals): void => {
  try {
    process.kill(-pid, name)
  } catch {
    // Nobody of the group is left, which is what the signal was for.
  }
}

const answers = (url: URL): Effect.Effect<void, TestServerFailed> =>
  Effect.tryPromise({
    try: (signal) => fetch(new URL("/api/version", url), { signal }).then((answer) => answer.text()),
    catch: (cause) => new TestServerFailed({ detail: "ollama does not answer", cause })
  }).pipe(Effect.asVoid)

export const makeOllamaServer = Effect.fnUntraced(function* (
  options: OllamaOptions
): Effect.fn.Return<OllamaServer, TestServerFailed, Scope> {
  const home = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "tgo-"))),
    (name) => Effect.promise(() => rm(name, { recursive: true, force: true, maxRetries: 5 }))
  )
  const port = yield* freePort
  const url = new URL(`http://127.0.0.1:${port}`)
  let log = ""
  let running:
    | { readonly child: ChildProcess; readonly pid: number; readonly gone: Deferred.Deferred<void> }
    | undefined

  const start = Effect.gen(function* () {
    const gone = yield* Deferred.make<void>()
    const [command = options.binary, ...words] = [...tied, options.binary, "serve"]
    const child = spawn(command, words, {
      env: {
        PATH: process.env["PATH"],
        HOME: home,
        OLLAMA_HOST: url.host,
        OLLAMA_MODELS: options.models,
        OLLAMA_NO_CLOUD: "1",
        OLLAMA_NOPRUNE: "1",
        OLLAMA_CONTEXT_LENGTH: "2048",
        OLLAMA_KEEP_ALIVE: "30m",
        OLLAMA_MAX_LOADED_MODELS: "8",
        ...options.env
      },
      // A group of its own: a runner whose server crashed is found by it.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"]
    })
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (log = (log + text).slice(-keptLog)))
    child.once("exit", () => Deferred.doneUnsafe(gone, Effect.void))
    child.once("error", () => Deferred.doneUnsafe(gone, Effect.void))
    running = { child, pid: child.pid ?? 0, gone }
    yield* answers(url).pipe(
      Effect.retry(Schedule.spaced("50 millis")),
      Effect.raceFirst(
        Effect.andThen(
          Deferred.await(gone),
          Effect.suspend(() =>
            Effect.fail(new TestServerFailed({ detail: `ollama ended:\n${log.slice(-2000)}` }))
          )
        )
      ),
      Effect.timeout("60 seconds"),
      Effect.mapError(
        (cause) => new TestServerFailed({ detail: `ollama did not start:\n${log.slice(-2000)}`, cause })
      )
    )
  })

  const kill = Effect.suspend(() => {
    if (running === undefined) return Effect.void
    signalGroup(running.pid, "SIGKILL")
    return Deferred.await(running.gone)
  })
  const stop = Effect.suspend(() => {
    if (running === undefined) return Effect.void
    running.child.kill("SIGTERM")
    return Deferred.await(running.gone).pipe(Effect.timeoutOption("10 seconds"), Effect.andThen(kill))
  })
  yield* Effect.acquireRelease(start, () => stop)
  return {
    url,
    pid: () => running?.pid ?? 0,
    runners: () => (running === undefined ? [] : childrenOf(running.pid)),
    log: () => log,
    stop,
    kill,
    start
  }
})
