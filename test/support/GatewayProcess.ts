/** The gateway as its own process, with everything it prints kept. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { Effect, Redacted, Schedule, type Scope } from "effect"
import { Fake, hello } from "./Gateway.ts"
import { eventually, maxWaitMs } from "./wait.ts"
import { compileCache, freePort, TestServerFailed } from "./servers/processes.ts"
import { TestDatabase } from "./TestPostgres.ts"
import { TestRedis } from "./TestRedis.ts"
import { posting } from "./posting.ts"

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

/** A gateway in production on the stores and the backend of the test, which need not wait for a balancer when it stops. */
export const makeGatewayOnStores = Effect.fnUntraced(function* (
  more: Readonly<Record<string, string>> = {},
  main?: string
) {
  const [database, redis, backend] = [yield* TestDatabase, yield* TestRedis, yield* Fake]
  const own = { DATABASE_URL: Redacted.value(database.url), REDIS_URL: redis.url, BACKEND_URL: backend.url }
  return yield* makeGatewayProcess({ NODE_ENV: "production", ...own, SHUTDOWN_DRAIN_MS: "0", ...more }, main)
})

/** Asks `/readyz` until it answers with `wanted`; the last status. */
export const readiness = ({ url }: { readonly url: string }, wanted = 200) =>
  eventually(
    Effect.promise(() => fetch(`${url}/readyz`).then(({ status }) => status)),
    (status) => status === wanted
  )

/** One request, its body read to the end; `cut` where it breaks off. */
export const post = ({ url }: { readonly url: string }, secret: string, body: unknown, path = "/api/chat") =>
  Effect.promise(async () => {
    const answer = await fetch(new URL(path, url), posting(secret, body))
    return { status: answer.status, headers: answer.headers, text: await answer.text().catch(() => "cut") }
  })

/** A short chat with model `m`: its status, and how long it waited in line. */
export const chatWith = (gateway: { readonly url: string }, secret: string) =>
  Effect.map(post(gateway, secret, hello()), ({ headers, status }) => ({
    status,
    waitedMs: Number(headers.get("x-queue-wait-ms"))
  }))
