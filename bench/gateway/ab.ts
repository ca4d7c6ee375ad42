/**
 * Two checkouts of Tollgate in turn, at the same load: `node bench/gateway/ab.ts --other <folder>`. Each has a Postgres and a
 * Redis of its own, which its own commands prepare. Rounds alternate, so that a busy hour of the machine meets both. It
 * prints the quartiles of the CPU of a request, that of the stores, and the medians of the ratios of neighbouring rounds.
 *
 * Both are warmed up by the same number of requests, because V8 goes on optimising for some fifty thousand. Warmed up for the same
 * 12 seconds, the slower of two builds had served fewer: a ratio of 2.3 became 1.5 after 150 seconds (2026-11-25).
 *
 * Arguments: `--other <folder>`; `--rounds 20`; `--seconds 2`; `--path /v1/chat/completions`; `--stream`; `--model short`;
 * `--connections 32`; `--warm 60000` requests; `--twins` for the memory twins; `--rate 200` for an open loop; `--flags` and `--other-flags` of Node.
 */
import { execFileSync } from "node:child_process"
import { parseArgs } from "node:util"
import { Effect, Redacted, type Scope } from "effect"
import { mintKey } from "../../src/domain/Key.ts"
import { durable, makePostgresClusterWith } from "../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"
import * as contenders from "./contenders.ts"
import { measure } from "./measure.ts"
import { processOn, serve } from "./processes.ts"
import { median } from "./report.ts"
import type { Work } from "./works.ts"

const { values: options } = parseArgs({
  options: {
    other: { type: "string" },
    rounds: { type: "string", default: "20" },
    seconds: { type: "string", default: "2" },
    path: { type: "string", default: "/v1/chat/completions" },
    stream: { type: "boolean", default: false },
    embed: { type: "boolean", default: false },
    model: { type: "string", default: "short" },
    connections: { type: "string", default: "32" },
    frames: { type: "string" },
    rate: { type: "string" },
    twins: { type: "boolean", default: false },
    warm: { type: "string", default: "60000" },
    flags: { type: "string", default: "" },
    "other-flags": { type: "string", default: "" }
  }
})

const most = "2000000000"

const work: Work = {
  name: "ab",
  path: options.path,
  model: options.model,
  request: options.embed
    ? { input: Array.from({ length: 64 }, (_, n) => `input ${n}`) }
    : { stream: options.stream, messages: [{ role: "user", content: "Hello" }] },
  connections: Number(options.connections),
  ...(options.rate === undefined ? {} : { rate: Number(options.rate) }),
  ...(options.frames === undefined ? {} : { frames: Number(options.frames) })
}

const quartiles = (values: ReadonlyArray<number>): string => {
  const sorted = values.toSorted((a, b) => a - b)
  return [0.25, 0.5, 0.75]
    .map((share) => (sorted[Math.floor(sorted.length * share)] ?? 0).toFixed(1))
    .join(" / ")
}

const makeStores = Effect.fnUntraced(function* (folder: string) {
  const cluster = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const databaseUrl = Redacted.value(cluster.url("postgres"))
  const tollgate = (...args: ReadonlyArray<string>) =>
    execFileSync(process.execPath, [`${folder}/cli/tollgate.js`, ...args], {
      env: { ...process.env, DATABASE_URL: databaseUrl, REDIS_URL: redis.url },
      encoding: "utf8"
    })
  tollgate("migrate")
  const limits = ["--rpm", most, "--tpm", most, "--concurrent", "100000"]
  tollgate("create-tenant", "--name", "bench", "--allow-all-models", ...limits)
  const key = /tg_\w{41}/.exec(tollgate("create-key", "--tenant", "bench", "--name", "good"))?.[0] ?? ""
  tollgate("set-budget", "--key", key.slice(0, 12), "--daily", most, "--monthly", most, "--total", most)
  return { databaseUrl, redisUrl: redis.url, key, pids: [processOn(cluster.port), processOn(redis.port)] }
})

const ab: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const { url } = yield* contenders.backend
  const of = Effect.fnUntraced(function* (folder: string, flags: string) {
    const stores = options.twins ? undefined : yield* makeStores(folder)
    const good = stores?.key ?? mintKey("tg_")
    const served = yield* serve(
      "0",
      [
        ...flags.split(" ").filter((flag) => flag !== ""),
        `${folder}/${options.twins ? "bench/gateway/twins.ts" : "build/start.js"}`
      ],
      {
        NODE_ENV: "production",
        ...(stores === undefined ? {} : { DATABASE_URL: stores.databaseUrl, REDIS_URL: stores.redisUrl }),
        BACKEND_URL: url,
        GOOD: good,
        SHUTDOWN_DRAIN_MS: "0",
        NUM_PREDICT_CAP: "20000",
        LOG_LEVEL: "error"
      }
    )
    return { ...served, key: good, name: "tollgate" as const, stores: stores?.pids ?? [] }
  })
  const take = Effect.fnUntraced(function* (
    contender: Effect.Success<ReturnType<typeof of>>,
    seconds: number
  ) {
    const { cpuPerRequest, firstP50, storesPerRequest } = yield* measure(contender, work, seconds)
    return {
      gateway: cpuPerRequest,
      stores: storesPerRequest,
      all: cpuPerRequest + storesPerRequest,
      first: firstP50
    }
  })
  const [a, b] = [
    yield* of(options.other ?? process.cwd(), options["other-flags"]),
    yield* of(process.cwd(), options.flags)
  ]
  for (const contender of [a, b]) {
    let served = 0
    while (served < Number(options.warm)) served += (yield* measure(contender, work, 5)).requests
  }
  const as: Array<Effect.Success<ReturnType<typeof take>>> = []
  const bs: typeof as = []
  for (let round = 0; round < Number(options.rounds); round++) {
    const order = round % 2 === 0
    const first = yield* take(order ? a : b, Number(options.seconds))
    const second = yield* take(order ? b : a, Number(options.seconds))
    as.push(order ? first : second)
    bs.push(order ? second : first)
  }
  const ratio = (of: "all" | "gateway" | "stores") =>
    median(as.map((one, n) => (bs[n]?.[of] ?? Number.NaN) / one[of])).toFixed(3)
  const figures = (of: "gateway" | "stores") =>
    `${of}: other ${quartiles(as.map((one) => one[of]))} µs, here ${quartiles(bs.map((one) => one[of]))} µs, ratio ${ratio(of)}`
  process.stdout.write(
    `${figures("gateway")}\n${options.twins ? "" : `${figures("stores")}\nall: ratio ${ratio("all")}\n`}` +
      `first byte p50 ${median(as.map(({ first }) => first)).toFixed(0)} and ${median(bs.map(({ first }) => first)).toFixed(0)} µs\n`
  )
})

await Effect.runPromise(Effect.scoped(ab))
process.exit(0)
