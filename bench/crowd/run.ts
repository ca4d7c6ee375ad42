/**
 * `npm run crowd`: very many clients at once on one gateway in production mode: idle connections that keep alive, and
 * streams of 20 frames a second. Prints what each costs in memory, how late frames are and how readiness answers
 * meanwhile; anything that went wrong, and more than 60 KiB a stream in heap and buffers, is a non-zero exit. Resident memory tells
 * more of how often V8 sweeps than of what a stream holds.
 *
 * Arguments: `--streams 1000 --idle 10000`.
 */
import { type ChildProcess, fork, spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { Data, Effect, Fiber, Layer, Redacted, Schedule, Schema } from "effect"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { type Figure, figure, table } from "../../lab/scale/figures.ts"
import { makeReplica, newKey } from "../../lab/scale/World.ts"
import { processState } from "../../test/support/invariants/processState.ts"
import { makePostgresCluster } from "../../test/support/servers/PostgresCluster.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"

const { values: options } = parseArgs({
  options: { streams: { type: "string", default: "1000" }, idle: { type: "string", default: "10000" } }
})
const [streams, idle] = [Number(options.streams), Number(options.idle)]

/** What a stream may cost, KiB. */
const most = 60

const file = (name: string) => fileURLToPath(new URL(name, import.meta.url))

const Said = Schema.Struct({
  did: Schema.String,
  frames: Schema.optional(Schema.Finite),
  whole: Schema.optional(Schema.Finite),
  p50: Schema.optional(Schema.Finite),
  p99: Schema.optional(Schema.Finite),
  problems: Schema.optional(Schema.Record(Schema.String, Schema.Finite))
})
const decodeSaid = Schema.decodeUnknownEffect(Said)

/** The process of the clients has ended before it was done. */
class Ended extends Data.TaggedError("Ended") {}

const scoped = (start: () => ChildProcess) =>
  Effect.acquireRelease(Effect.sync(start), (child) => Effect.sync(() => void child.kill("SIGKILL")))

const said = (child: ChildProcess, did: string) =>
  Effect.callback<unknown, Ended>((resume) => {
    const hear = (message: unknown) => {
      if (!JSON.stringify(message).includes(`"did":"${did}"`)) return
      child.off("message", hear)
      resume(Effect.succeed(message))
    }
    child.on("message", hear)
    child.once("exit", () => resume(Effect.fail(new Ended())))
  }).pipe(Effect.flatMap(decodeSaid))

const stub = Effect.gen(function* () {
  const port = yield* freePort
  const script = file("../gateway/stub.ts")
  yield* scoped(() =>
    spawn(process.execPath, [script], { env: { ...process.env, PORT: String(port) }, stdio: "ignore" })
  )
  const url = `http://127.0.0.1:${port}`
  yield* Effect.tryPromise(() => fetch(url).then((response) => response.text())).pipe(
    Effect.retry({ times: 200, schedule: Schedule.spaced("25 millis") })
  )
  return url
})

/** Asks every 100 ms on a connection of its own; milliseconds each took, and how many were no 200. */
const readiness = (url: string, took: Array<number>, odd: Array<number>) =>
  Effect.promise(async (signal) => {
    const began = performance.now()
    const response = await fetch(`${url}/readyz`, { signal, headers: { connection: "close" } })
    await response.text()
    took.push(performance.now() - began)
    if (response.status !== 200) odd.push(response.status)
  }).pipe(Effect.andThen(Effect.sleep("100 millis")), Effect.forever)

/** MiB that its heap and its buffers hold just now, rubbish included. */
const held = (url: string) =>
  Effect.promise((signal) => fetch(`${url}/metrics`, { signal }).then((response) => response.text())).pipe(
    Effect.map((text) =>
      ["nodejs_heap_size_used_bytes", "nodejs_external_memory_bytes"].reduce(
        (sum, name) => sum + Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]) / 2 ** 20,
        0
      )
    )
  )

/** The least it held in `seconds`, which is what it held just after it was swept. */
const least = (url: string, seconds: number) =>
  Effect.map(Effect.replicateEffect(Effect.delay(held(url), "200 millis"), seconds * 5), (all) =>
    Math.min(...all)
  )

const quantile = (values: ReadonlyArray<number>, q: number): number => {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? 0
}

const crowd = Effect.gen(function* () {
  const cluster = yield* makePostgresCluster
  const redis = yield* makeRedisServer(findRedis())
  const database = layerPostgres({ url: cluster.socket("postgres") })
  yield* Effect.provide(migrate, database)
  const key = yield* newKey("crowd").pipe(
    Effect.provide(Layer.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }), database))
  )
  const gateway = yield* makeReplica({
    NODE_ENV: "production",
    DATABASE_URL: Redacted.value(cluster.url("postgres")),
    REDIS_URL: redis.url,
    BACKEND_URL: yield* stub,
    LOG_LEVEL: "error"
  })
  const rss = () => processState(gateway.pid())?.rssMiB ?? 0
  const clients = yield* scoped(() =>
    fork(file("clients.ts"), { env: { ...process.env, URL: gateway.url, KEY: key.secret } })
  )
  const tell = (message: object, did: string) =>
    Effect.andThen(
      Effect.sync(() => void clients.send(message)),
      said(clients, did)
    )
  // So that what a process that works needs once is not taken for the cost of a stream.
  yield* tell({ streams: Math.ceil(streams / 5) }, "streamed")
  yield* Effect.sleep("2 seconds")
  const before = rss()
  const heapBefore = yield* least(gateway.url, 5)

  yield* tell({ idle }, "idle")
  yield* Effect.sleep("2 seconds")
  const withIdle = rss()
  const heapIdle = yield* least(gateway.url, 5)
  const took: Array<number> = []
  const odd: Array<number> = []
  const asking = yield* Effect.forkChild(readiness(gateway.url, took, odd))
  const streaming = yield* Effect.forkChild(said(clients, "streamed"), { startImmediately: true })
  yield* tell({ streams }, "begun")
  const heap = yield* Effect.forkChild(least(gateway.url, 20), { startImmediately: true })
  const curve: Array<number> = []
  const measuring = yield* Effect.forkChild(
    Effect.sync(() => curve.push(rss())).pipe(Effect.andThen(Effect.sleep("1 second")), Effect.forever),
    { startImmediately: true }
  )
  const heapStreams = yield* Fiber.join(heap)
  const seen = yield* Fiber.join(streaming)
  yield* Fiber.interrupt(measuring)
  yield* Fiber.interrupt(asking)
  const closed = yield* tell({ close: true }, "closed")
  yield* Effect.sleep("5 seconds")
  const after = rss()
  const atMost = Math.max(...curve)
  const perStream = ((atMost - withIdle) * 1024) / streams
  const problems = Object.entries({ ...seen.problems, ...closed.problems })
  const figures: ReadonlyArray<Figure> = [
    figure("RSS before, MiB", Math.round(before)),
    figure(`RSS with ${idle} idle connections, MiB`, Math.round(withIdle)),
    figure(`RSS with ${streams} streams as well, MiB: median`, Math.round(quantile(curve, 0.5))),
    figure(`RSS with ${streams} streams as well, MiB: most`, Math.round(atMost), (n) => n < 512),
    figure("RSS five seconds after all have gone, MiB", Math.round(after)),
    figure("least heap and buffers, MiB: before", heapBefore),
    figure("least heap and buffers, MiB: with the idle", heapIdle),
    figure("least heap and buffers, MiB: with the streams", heapStreams),
    figure("KiB of them a stream", ((heapStreams - heapIdle) * 1024) / streams, (n) => n <= most),
    figure("KiB an idle connection", ((withIdle - before) * 1024) / idle),
    figure("KiB a stream, by the median", ((quantile(curve, 0.5) - withIdle) * 1024) / streams),
    figure("KiB a stream, by the most", perStream),
    figure("streams that came whole", seen.whole ?? 0, (n) => n === streams),
    figure("frames", seen.frames ?? 0, (n) => n === streams * 600),
    figure("frame delay, ms: median", seen.p50 ?? 0),
    figure("frame delay, ms: p99", seen.p99 ?? 0),
    figure("readyz, ms: median", quantile(took, 0.5)),
    figure("readyz, ms: p99", quantile(took, 0.99)),
    figure("readyz that were no 200", odd.length, (n) => n === 0),
    ...problems.map(([name, count]) => figure(name, count, () => false))
  ]
  yield* Effect.sync(() =>
    process.stdout.write(
      `${table(`${streams} streams, ${idle} idle connections, Node ${process.version}`, figures)}\n`
    )
  )
  return figures.every(({ right }) => right)
})

process.exitCode = (await Effect.runPromise(Effect.scoped(crowd))) ? 0 : 1
