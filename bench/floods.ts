/**
 * `npm run floods`: what floods of bad keys do to paying clients (docs/hardening.md, A06 to A09). Eight keys that pay, with and
 * without a flood in turns, medians over the rounds; 64 first uses of 64 good keys at once; and how long a 401 takes
 * for an unknown prefix, a wrong secret and a revoked key.
 *
 * Arguments: `--rounds 3 --seconds 8 --timings 200`. Fails when a paying client was refused, when its 99th percentile
 * more than doubled in all rounds, or when memory went above 512 MiB.
 */
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Effect, Fiber, Layer, Redacted, Schedule, Schema } from "effect"
import { prefixOf } from "../src/domain/Key.ts"
import { migrate } from "../src/infra/Migrations.ts"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../src/admin/Registry.ts"
import { durable, makePostgresClusterWith } from "../test/support/servers/PostgresCluster.ts"
import { freePort } from "../test/support/servers/processes.ts"
import { findRedis } from "../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../test/support/servers/RedisServer.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "8" },
    timings: { type: "string", default: "200" }
  }
})
const rounds = Number(options.rounds)
const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))
const file = (name: string) => fileURLToPath(new URL(name, import.meta.url))

type Env = Readonly<Record<string, string>>

/** A flood gives way to the others, as if it came from another machine. */
const launch = (script: string, env: Env, niceness = script === "floods/flood.ts" ? 5 : 0) =>
  spawn("nice", ["-n", String(niceness), process.execPath, file(script)], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"]
  })

const serve = Effect.fnUntraced(function* (script: string, env: Env) {
  const port = yield* freePort
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => launch(script, { ...env, PORT: String(port) })),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )
  child.stdout.resume()
  const url = `http://127.0.0.1:${port}`
  yield* Effect.tryPromise(() => fetch(`${url}/readyz`).then((response) => response.text())).pipe(
    Effect.retry({ times: 400, schedule: Schedule.spaced("25 millis") })
  )
  return { url, child }
})

/** Runs a script to its end; what it printed is one line of JSON. */
const figures = <A>(schema: Schema.Decoder<A>, script: string, env: Env) =>
  Effect.callback<string>((resume) => {
    const child = launch(script, env)
    let text = ""
    child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text += chunk))
    child.on("close", () => resume(Effect.succeed(text)))
    return Effect.sync(() => void child.kill("SIGKILL"))
  }).pipe(Effect.flatMap(Schema.decodeUnknownEffect(Schema.fromJsonString(schema))))

const Statuses = Schema.Record(Schema.String, Schema.Finite)
const Flood = Schema.Struct({ sent: Schema.Finite, statuses: Statuses })
const Paid = Schema.Struct({
  requests: Schema.Finite,
  p50: Schema.Finite,
  p99: Schema.Finite,
  most: Schema.Finite,
  statuses: Statuses
})
const Timings = Schema.Array(
  Schema.Struct({
    name: Schema.String,
    mean: Schema.Finite,
    p10: Schema.Finite,
    p50: Schema.Finite,
    p90: Schema.Finite
  })
)

const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
const listed = (statuses: typeof Statuses.Type): string =>
  Object.entries(statuses)
    .map(([status, count]) => `${status}×${count}`)
    .join(" ")

const peakMiB = (pid: number | undefined): number =>
  Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const floods = [
  { name: "wrong secrets under one prefix", kind: "tails", rate: 500 },
  { name: "random unknown prefixes", kind: "prefixes", rate: 2000 },
  { name: "junk tokens", kind: "junk", rate: 2000 }
]

const bench = Effect.gen(function* () {
  const cluster = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const database = layerPostgres({ url: cluster.socket("postgres") })
  yield* Effect.provide(migrate, database)
  const keysOf = Effect.fnUntraced(
    function* (tenant: string, count: number) {
      const registry = yield* Registry
      const most = 2_000_000_000
      yield* registry.createTenant({
        name: tenant,
        allowAllModels: true,
        rpm: most,
        tpm: most,
        concurrent: 1000
      })
      return yield* Effect.forEach(Array.from({ length: count }), () =>
        Effect.map(registry.createKey({ tenant, name: "k", allowDuplicate: true }), ({ secret }) => secret)
      )
    },
    Effect.provide(Layer.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }), database))
  )
  const stub = yield* serve("gateway/stub.ts", {})
  const gateway = serve("../src/main.ts", {
    NODE_ENV: "production",
    DATABASE_URL: Redacted.value(cluster.url("postgres")),
    REDIS_URL: redis.url,
    BACKEND_URL: stub.url,
    LOG_LEVEL: "fatal"
  })
  const payers = yield* keysOf("payers", 8)
  const [bait = "", revoked = ""] = yield* keysOf("others", 2)
  const wrong: Array<string> = []

  const { child, url } = yield* gateway
  const paid = (seconds: number) =>
    figures(Paid, "floods/payers.ts", { URL: url, KEYS: payers.join(","), SECONDS: String(seconds) })
  yield* paid(3)
  for (const { kind, name, rate } of floods) {
    const calm: Array<typeof Paid.Type> = []
    const flooded: Array<typeof Paid.Type> = []
    let last = ""
    for (let round = 0; round < rounds; round += 1) {
      calm.push(yield* paid(Number(options.seconds)))
      const env = {
        URL: url,
        KIND: kind,
        RATE: String(rate),
        PREFIX: prefixOf(bait),
        SECONDS: String(Number(options.seconds) + 4)
      }
      const [during, flood] = yield* Effect.all(
        // A flood's own start takes a core here, which no flood from elsewhere does.
        [Effect.delay(paid(Number(options.seconds)), "3 seconds"), figures(Flood, "floods/flood.ts", env)],
        { concurrency: 2 }
      )
      flooded.push(during)
      last = listed(flood.statuses)
    }
    const p50 = [calm, flooded].map((runs) => median(runs.map((run) => run.p50)))
    const p99 = [calm, flooded].map((runs) => median(runs.map((run) => run.p99)))
    const factors = flooded.map((run, n) => run.p99 / (calm[n]?.p99 ?? 1))
    yield* say(
      `${name}, ${rate} a second: p50 ${p50.map((ms) => ms.toFixed(1)).join(" -> ")} ms, ` +
        `p99 ${p99.map((ms) => ms.toFixed(1)).join(" -> ")} ms (x${factors.map((x) => x.toFixed(1)).join(", x")}), ` +
        `${peakMiB(child.pid).toFixed(0)} MiB at most\n  flood ${last}\n  payers ${listed(flooded.at(-1)?.statuses ?? {})}`
    )
    if (Math.min(...factors) > 2) wrong.push(`${name}: more than twice the latency`)
    if (flooded.some(({ statuses }) => Object.keys(statuses).some((status) => status !== "200")))
      wrong.push(`${name}: paying clients were refused`)
  }
  if (peakMiB(child.pid) > 512) wrong.push("more than 512 MiB")

  yield* Effect.provide(
    Effect.flatMap(Registry, (registry) => registry.revokeKey(prefixOf(revoked))),
    Layer.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }), database)
  )
  const TOKENS = `unknown prefix=,wrong secret=${prefixOf(bait)},revoked and wrong=${prefixOf(revoked)}`
  for (const { mean, name, p10, p50, p90 } of yield* figures(Timings, "floods/timing.ts", {
    URL: url,
    TOKENS,
    ROUNDS: options.timings
  })) {
    const [low, middle, high] = [p10, p50, p90].map((ms) => ms.toFixed(2))
    yield* say(`401 for ${name}: mean ${mean.toFixed(2)} ms, p10 ${low}, p50 ${middle}, p90 ${high}`)
  }

  for (const [round, flood] of [undefined, floods[0], undefined, floods[0]].entries()) {
    const fresh = yield* keysOf(`fresh-${round}`, 64)
    const cold = yield* gateway
    const before = peakMiB(cold.child.pid)
    const env = {
      URL: cold.url,
      KIND: flood?.kind ?? "",
      RATE: String(flood?.rate ?? 0),
      PREFIX: prefixOf(bait)
    }
    const flooding = yield* Effect.forkChild(figures(Flood, "floods/flood.ts", { ...env, SECONDS: "6" }))
    yield* Effect.sleep("2 seconds")
    const first = yield* figures(Paid, "floods/payers.ts", {
      URL: cold.url,
      KEYS: fresh.join(","),
      AT_ONCE: "1"
    })
    yield* say(
      `64 first uses of 64 keys at once${flood === undefined ? "" : `, beside ${flood.name}`}: ${listed(first.statuses)}, ` +
        `p50 ${first.p50.toFixed(0)} ms, last ${first.most.toFixed(0)} ms, +${(peakMiB(cold.child.pid) - before).toFixed(0)} MiB`
    )
    if (first.statuses["200"] !== 64) wrong.push("a good key was refused at its first use")
    yield* Fiber.interrupt(flooding)
    cold.child.kill("SIGKILL")
  }
  for (const line of wrong) yield* say(`FAILED: ${line}`)
  return wrong.length === 0
})

process.exit((await Effect.runPromise(Effect.scoped(bench))) ? 0 : 1)
