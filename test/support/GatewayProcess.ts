/** The gateway as its own process, with everything it prints kept. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { Effect, Schedule, type Scope } from "effect"
import { hello } from "./Gateway.ts"
import { maxWaitMs } from "./wait.ts"
import { compileCache, freePort, TestServerFailed } from "./servers/processes.ts"

export interface GatewayProcess {
  readonly url: string
  readonly pid: number
  /** sends a signal to the process that was started */
  readonly signal: (signal: NodeJS.Signals) => void
  /** its exit code, when it ends */
  readonly ended: Effect.Effect<number | null>
  /** stdout and stderr so far */
  readonly printed: () => string
  /** SIGSTOP: nothing of it runs until `resume` */
  readonly pause: Effect.Effect<void>
  readonly resume: Effect.Effect<void>
  /** SIGTERM; its exit code */
  readonly stop: Effect.Effect<number | null>
}

const ownMain = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

/** Whatever the environment of the tests says, it gets only `env`. Done when `/healthz` answers. */
export const makeGatewayProcess = (
  env: Readonly<Record<string, string>>,
  /** another version's `src/main.ts` */
  main: string = ownMain
): Effect.Effect<GatewayProcess, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const port = yield* freePort
    const child = spawn(process.execPath, [main], {
      env: { PATH: process.env["PATH"], NODE_COMPILE_CACHE: compileCache, ...env, PORT: String(port) },
      stdio: ["ignore", "pipe", "pipe"]
    })
    const gone = once(child, "exit")
    const pid = child.pid ?? -1
    let printed = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (printed += text))
    yield* Effect.addFinalizer(() =>
      Effect.promise(async () => {
        child.kill("SIGKILL")
        await gone
      })
    )
    const url = `http://127.0.0.1:${port}`
    yield* Effect.tryPromise((signal) =>
      fetch(`${url}/healthz`, { signal }).then((answer) => answer.text())
    ).pipe(
      Effect.retry(Schedule.spaced("50 millis")),
      Effect.raceFirst(
        Effect.flatMap(
          Effect.promise(() => gone),
          () =>
            Effect.fail(new TestServerFailed({ detail: `the gateway ended instead of starting: ${printed}` }))
        )
      ),
      Effect.timeoutOrElse({
        duration: maxWaitMs,
        orElse: () => new TestServerFailed({ detail: `the gateway did not start: ${printed}` })
      })
    )
    return {
      url,
      pid,
      signal: (signal) => void child.kill(signal),
      ended: Effect.promise(async () => {
        await gone
        return child.exitCode
      }),
      printed: () => printed,
      pause: Effect.sync(() => void child.kill("SIGSTOP")),
      resume: Effect.sync(() => void child.kill("SIGCONT")),
      stop: Effect.promise(async () => {
        child.kill("SIGTERM")
        await gone
        return child.exitCode
      })
    }
  })

/** A short chat with model `m`: its status, and how long it waited in line. */
export const chatWith = ({ url }: { readonly url: string }, secret: string) =>
  Effect.promise(async () => {
    const answer = await fetch(`${url}/api/chat`, {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify(hello())
    })
    await answer.text()
    return { status: answer.status, waitedMs: Number(answer.headers.get("x-queue-wait-ms")) }
  })
