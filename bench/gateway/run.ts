/**
 * `npm run bench`: Tollgate against the floor, on this machine. Server on core 0, backend, stores and load on core 1;
 * contenders take turns (A B A B), and what is printed is the median over the rounds with its spread.
 *
 * Arguments: `--rounds 3 --seconds 6`; `--only short` for the works whose name has that in it; `--profile <dir>` leaves
 * a V8 CPU profile of Tollgate there.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Effect, Layer, Redacted, Schedule, Schema, type Scope } from "effect"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerLive as layerRegistry } from "../../src/registry/live.ts"
import { Registry } from "../../src/registry/Registry.ts"
import { durable, makePostgresClusterWith } from "../../test/support/servers/PostgresCluster.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "6" },
    only: { type: "string", default: "" },
    profile: { type: "string" }
  }
})
const rounds = Number(options.rounds)

const file = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

type Env = Readonly<Record<string, string>>

const launch = (core: number, script: string, env: Env, flags: ReadonlyArray<string> = []) =>
  spawn("taskset", ["-c", String(core), process.execPath, ...flags, script], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })

const answers = (url: string) =>
  Effect.tryPromise(() =>
    fetch(url, { signal: AbortSignal.timeout(1000) }).then((response) => response.text())
  ).pipe(Effect.retry({ times: 400, schedule: Schedule.spaced("25 millis") }))

/** Asked to stop, and waited for: a profile is written on the way out. */
const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGTERM")
  })

/** A process that is up once it answers on its port; ended with the scope. */
const serve = Effect.fnUntraced(function* (core: number, script: string, env: Env, profile?: string) {
  const port = yield* freePort
  const flags = profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profile}`]
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => launch(core, script, { ...env, PORT: String(port) }, flags)),
    (child) => (profile === undefined ? Effect.sync(() => void child.kill("SIGKILL")) : ended(child))
  )
  child.stdout.resume()
  const url = `http://127.0.0.1:${port}`
  yield* answers(`${url}/readyz`)
  return { url, child }
})

/** CPU seconds the process has used so far, and its resident memory in MiB. */
const costOf = (child: ChildProcess): { readonly cpu: number; readonly rss: number } => {
  const stat = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  const rss = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]
  return { cpu: (Number(stat[11]) + Number(stat[12])) / 100, rss: Number(rss) / 1024 }
}

const Load = Schema.fromJsonString(
  Schema.Struct({
    rps: Schema.Finite,
    requests: Schema.Finite,
    firstP50: Schema.Finite,
    firstP99: Schema.Finite,
    frameP50: Schema.Finite,
    frameP99: Schema.Finite,
    frames: Schema.Finite,
    statuses: Schema.Record(Schema.String, Schema.Finite)
  })
)

const load = (url: string, work: Work, key: string, seconds: number) =>
  Effect.callback<string>((resume) => {
    const child = launch(1, file("load.ts"), {
      URL: url + work.path,
      KEY: work.key ?? key,
      BODY: work.body,
      CONNECTIONS: String(work.connections),
      SECONDS: String(seconds)
    })
    let text = ""
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text += chunk))
    child.on("close", () => resume(Effect.succeed(text)))
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Load)))

interface Work {
  readonly name: string
  readonly path: string
  readonly body: string
  readonly connections: number
  /** frames a request has, when what counts is the cost of a frame */
  readonly frames?: number
  /** instead of the good key */
  readonly key?: string
}

const chat = (model: string) => JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }] })
const whole = (model: string) =>
  JSON.stringify({ model, stream: false, messages: [{ role: "user", content: "Hello" }] })

const works: ReadonlyArray<Work> = [
  { name: "short answers, one object", path: "/api/chat", body: whole("short"), connections: 50 },
  {
    name: "200 frames as fast as they come",
    path: "/api/chat",
    body: chat("burst"),
    connections: 20,
    frames: 200
  },
  {
    name: "300 streams, 20 ms a frame",
    path: "/api/chat",
    body: chat("paced"),
    connections: 300,
    frames: 100
  },
  { name: "half load, one object", path: "/api/chat", body: whole("short"), connections: 4 },
  { name: "refused: 401", path: "/api/chat", body: whole("short"), connections: 50, key: "nonsense" },
  { name: "refused: 403 model", path: "/api/chat", body: whole("nothing"), connections: 50 }
]

interface Sample {
  readonly rps: number
  readonly cpuPerRequest: number
  readonly cpuPerFrame: number
  readonly firstP50: number
  readonly firstP99: number
  readonly frameP50: number
  readonly rss: number
  readonly odd: string
}

const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

const spread = (values: ReadonlyArray<number>): string =>
  values.length === 0
    ? ""
    : `±${Math.round((100 * (Math.max(...values) - Math.min(...values))) / 2 / (median(values) || 1))} %`

const measure = Effect.fnUntraced(function* (
  contender: { readonly url: string; readonly child: ChildProcess },
  work: Work,
  key: string
) {
  const before = costOf(contender.child)
  const result = yield* load(contender.url, work, key, Number(options.seconds))
  const after = costOf(contender.child)
  const cpu = (after.cpu - before.cpu) * 1e6
  const odd = Object.entries(result.statuses)
    .map(([status, count]) => `${status}×${count}`)
    .join(" ")
  return {
    rps: result.rps,
    cpuPerRequest: cpu / result.requests,
    cpuPerFrame: work.frames === undefined ? 0 : cpu / result.requests / work.frames,
    firstP50: result.firstP50,
    firstP99: result.firstP99,
    frameP50: result.frameP50,
    rss: after.rss,
    odd
  } satisfies Sample
})

const bench: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const cluster = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const database = layerPostgres({ url: cluster.socket("postgres") })
  yield* Effect.provide(migrate, database)
  const key = yield* Effect.gen(function* () {
    const registry = yield* Registry
    const most = 2_000_000_000
    yield* registry.createTenant({
      name: "bench",
      allowAllModels: true,
      rpm: most,
      tpm: most,
      concurrent: 100_000
    })
    const { secret, key } = yield* registry.createKey({ tenant: "bench", name: "bench" })
    yield* registry.setBudgets(key.prefix, { day: 9e15, month: 9e15, total: 9e15 })
    return secret
  }).pipe(
    Effect.provide(Layer.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }), database))
  )
  const stub = yield* serve(1, file("stub.ts"), {})
  const floor = yield* serve(0, file("floor.ts"), { BACKEND_URL: stub.url })
  const tollgate = yield* serve(
    0,
    file("../../src/main.ts"),
    {
      NODE_ENV: "production",
      DATABASE_URL: Redacted.value(cluster.url("postgres")),
      REDIS_URL: redis.url,
      BACKEND_URL: stub.url,
      SHUTDOWN_DRAIN_MS: "0",
      LOG_LEVEL: "error"
    },
    options.profile
  )
  const contenders = { floor, tollgate }
  yield* say(
    `Node ${process.version}, ${rounds} rounds of ${options.seconds} s, medians; ± is half the range\n`
  )
  for (const work of works.filter(({ name }) => name.includes(options.only))) {
    const samples: Record<keyof typeof contenders, Array<Sample>> = { floor: [], tollgate: [] }
    for (const contender of [floor, tollgate]) yield* load(contender.url, work, key, 2)
    for (let round = 0; round < rounds; round++) {
      for (const name of ["floor", "tollgate"] as const) {
        if (name === "floor" && work.name.startsWith("refused")) continue
        samples[name].push(yield* measure(contenders[name], work, key))
      }
    }
    yield* say(`${work.name} (${work.connections} connections)`)
    for (const name of ["floor", "tollgate"] as const) {
      const of = (figure: Exclude<keyof Sample, "odd">) => samples[name].map((sample) => sample[figure])
      if (samples[name].length === 0) continue
      yield* say(
        `  ${name.padEnd(9)} ${median(of("rps")).toFixed(0).padStart(7)} req/s ${spread(of("rps")).padEnd(6)}` +
          ` cpu ${median(of("cpuPerRequest")).toFixed(0)} µs/req` +
          (work.frames === undefined ? "" : ` ${median(of("cpuPerFrame")).toFixed(2)} µs/frame`) +
          `  first byte p50 ${(median(of("firstP50")) / 1000).toFixed(2)} p99 ${(median(of("firstP99")) / 1000).toFixed(2)} ms` +
          (work.name.includes("20 ms")
            ? `  frame delay p50 ${(median(of("frameP50")) / 1000).toFixed(3)} ms`
            : "") +
          `  ${median(of("rss")).toFixed(0)} MiB  [${samples[name].at(-1)?.odd ?? ""}]`
      )
    }
    if (samples.floor.length > 0) {
      const ratio = median(samples.tollgate.map((s) => s.rps)) / median(samples.floor.map((s) => s.rps))
      yield* say(`  ratio     ${ratio.toFixed(2)} of the floor\n`)
    } else yield* say("")
  }
})

await Effect.runPromise(Effect.scoped(bench))
process.exit(0)
