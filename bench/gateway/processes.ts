/** Programs of the benchmark, each on the cores it is given. */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Duration, Effect, Schedule } from "effect"
import { freePort } from "../../test/support/servers/processes.ts"

/** Besides what this process has; `undefined` takes something of it away. */
export type Env = Readonly<Record<string, string | undefined>>

export const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

/** `cores` as taskset writes them: `0`, or `0,1`. */
export const launch = (
  cores: string,
  args: ReadonlyArray<string>,
  env: Env,
  { program = process.execPath, folder, silent = false }: Pick<How, "program" | "folder" | "silent"> = {}
): ChildProcess =>
  spawn("taskset", ["-c", cores, program, ...args], {
    env: { ...process.env, ...env },
    cwd: folder,
    stdio: ["ignore", "pipe", silent ? "ignore" : "inherit"]
  })

/** Any answer at all; a program that is not there in a minute does not come. */
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
  /** resident memory before the first request, MiB */
  readonly idleRss: number
}

export interface How {
  /** asked to end and waited for, not killed */
  readonly gently?: boolean
  /** default this Node */
  readonly program?: string | undefined
  /** where it runs; default here */
  readonly folder?: string
  /** nothing of what it writes to stderr is shown */
  readonly silent?: boolean
  /** how long it is left alone before its memory is read; default not at all */
  readonly idleS?: number
}

/** A program that is up once it answers on `PORT`, `{port}` in its arguments; ended with the scope. */
export const serve = Effect.fnUntraced(function* (
  cores: string,
  args: ReadonlyArray<string>,
  env: Env,
  how: How = {}
) {
  const port = yield* freePort
  const placed = args.map((arg) => arg.replace("{port}", String(port)))
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => launch(cores, placed, { ...env, PORT: String(port) }, how)),
    (child) => (how.gently === true ? ended(child) : Effect.sync(() => void child.kill("SIGKILL")))
  )
  child.stdout?.resume()
  const url = `http://127.0.0.1:${port}`
  yield* answers(`${url}/readyz`)
  yield* Effect.sleep(Duration.seconds(how.idleS ?? 0))
  return { url, child, idleRss: costOf(child).rss } satisfies Served
})

const gone: ReadonlySet<unknown> = new Set(["ENOENT", "ESRCH"])

/** A file of `/proc`, empty when its process has ended meanwhile: backends of Postgres come and go. */
const readProc = (path: string): string => {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    if (error instanceof Error && "code" in error && gone.has(error.code)) return ""
    throw error
  }
}

/** A process and all that it has started, and those in turn. */
const family = (pid: number): ReadonlyArray<number> => {
  const tasks = existsSync(`/proc/${pid}/task`) ? readdirSync(`/proc/${pid}/task`) : []
  const children = tasks
    .flatMap((task) => readProc(`/proc/${pid}/task/${task}/children`).split(" "))
    .filter((child) => child.trim() !== "")
  return [pid, ...children.flatMap((child) => family(Number(child)))]
}

/** The process that was started with `port` among its arguments; 0: there is none. */
export const processOn = (port: number): number =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((pid) => readProc(`/proc/${pid}/cmdline`).split("\0").includes(String(port))) ?? 0

/** CPU seconds used so far, and resident memory in MiB, of a program and the processes it has started. */
export const costOf = (child: ChildProcess): Cost => costOfPid(child.pid ?? 0)

export interface Cost {
  readonly cpu: number
  readonly rss: number
}

export const costOfPid = (pid: number): Cost => {
  const costs = family(pid).map((pid) => {
    const stat = readProc(`/proc/${pid}/stat`).split(") ")[1]?.split(" ") ?? []
    const rss = /VmRSS:\s+(\d+)/.exec(readProc(`/proc/${pid}/status`))?.[1] ?? 0
    return { cpu: (Number(stat[11] ?? 0) + Number(stat[12] ?? 0)) / 100, rss: Number(rss) / 1024 }
  })
  const sum = (values: ReadonlyArray<number>) => values.reduce((total, value) => total + value, 0)
  return { cpu: sum(costs.map(({ cpu }) => cpu)), rss: sum(costs.map(({ rss }) => rss)) }
}

/** Jiffies each of the first two cores has spent so far: busy, and in all. */
export const coresSoFar = (): ReadonlyArray<{ readonly busy: number; readonly all: number }> =>
  ["cpu0", "cpu1"].map((core) => {
    const line = new RegExp(`^${core} (.*)$`, "m").exec(readFileSync("/proc/stat", "utf8"))?.[1] ?? ""
    const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0] = line
      .trim()
      .split(" ")
      .map(Number)
    const busy = user + nice + system + irq + soft + steal
    return { busy, all: busy + idle + wait }
  })
