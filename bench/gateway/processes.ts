/** Programs of the benchmark, each on a core of its own choosing. */
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Effect, Schedule } from "effect"
import { freePort } from "../../test/support/servers/processes.ts"

/** Besides what this process has; `undefined` takes something of it away. */
export type Env = Readonly<Record<string, string | undefined>>

export const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

export const launch = (
  core: number,
  args: ReadonlyArray<string>,
  env: Env,
  program = process.execPath
): ChildProcess =>
  spawn("taskset", ["-c", String(core), program, ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })

/** Any answer at all; a program that is not there in a minute does not come. LiteLLM takes ten seconds of a free core. */
const answers = (url: string) =>
  Effect.tryPromise(() =>
    fetch(url, { signal: AbortSignal.timeout(1000) }).then((response) => response.text())
  ).pipe(Effect.retry({ times: 2400, schedule: Schedule.spaced("25 millis") }))

/** Asked to stop and waited for, so that it can write down what it has measured of itself. */
const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGTERM")
  })

export interface Served {
  readonly url: string
  readonly child: ChildProcess
  /** from the start of the process to its first answer, ms */
  readonly startMs: number
}

export interface How {
  /** asked to end and waited for, not killed */
  readonly gently?: boolean
  /** default this Node */
  readonly program?: string
}

/** A program that is up once it answers on `PORT`, `{port}` in its arguments; ended with the scope. */
export const serve = Effect.fnUntraced(function* (
  core: number,
  args: ReadonlyArray<string>,
  env: Env,
  how: How = {}
) {
  const port = yield* freePort
  const startedAt = performance.now()
  const placed = args.map((arg) => arg.replace("{port}", String(port)))
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => launch(core, placed, { ...env, PORT: String(port) }, how.program)),
    (child) => (how.gently === true ? ended(child) : Effect.sync(() => void child.kill("SIGKILL")))
  )
  child.stdout?.resume()
  const url = `http://127.0.0.1:${port}`
  yield* answers(`${url}/readyz`)
  return { url, child, startMs: performance.now() - startedAt } satisfies Served
})

/** CPU seconds the process has used so far, and its resident memory in MiB. */
export const costOf = (child: ChildProcess): { readonly cpu: number; readonly rss: number } => {
  const stat = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  const rss = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]
  return { cpu: (Number(stat[11]) + Number(stat[12])) / 100, rss: Number(rss) / 1024 }
}
