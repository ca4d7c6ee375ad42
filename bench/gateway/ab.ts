/**
 * Two checkouts of Tollgate in turn, on the same stores and the same load: `node bench/gateway/ab.ts --other <folder>`.
 * Rounds alternate, so that a busy hour of the machine meets both. It prints the quartiles of the CPU of a request, and
 * the median of the ratios of neighbouring rounds.
 *
 * Arguments: `--other <folder>`; `--rounds 20`; `--seconds 2`; `--path /v1/chat/completions`; `--stream`; `--model short`;
 * `--connections 32`; `--twins` for the memory twins; `--rate 200` for an open loop; `--flags` and `--other-flags` of Node.
 */
import { parseArgs } from "node:util"
import { Effect, type Scope } from "effect"
import { mintKey } from "../../src/domain/Key.ts"
import * as contenders from "./contenders.ts"
import { measure } from "./measure.ts"
import { serve } from "./processes.ts"
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
    warm: { type: "string", default: "20" },
    flags: { type: "string", default: "" },
    "other-flags": { type: "string", default: "" }
  }
})

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

const ab: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const { url } = yield* contenders.backend
  const stores = options.twins ? undefined : yield* contenders.makeStores()
  const of = (folder: string, flags: string) => {
    const keys = stores?.keys ?? { good: mintKey("tg_"), poor: mintKey("tg_"), nobody: "nonsense" }
    return Effect.map(
      serve(
        "0",
        [
          ...flags.split(" ").filter((flag) => flag !== ""),
          `${folder}/${options.twins ? "bench/gateway/twins.ts" : "build/start.js"}`
        ],
        {
          NODE_ENV: "production",
          ...(stores === undefined ? {} : { DATABASE_URL: stores.databaseUrl, REDIS_URL: stores.redisUrl }),
          BACKEND_URL: url,
          GOOD: keys.good,
          POOR: keys.poor,
          SHUTDOWN_DRAIN_MS: "0",
          NUM_PREDICT_CAP: "20000",
          LOG_LEVEL: "error"
        }
      ),
      (served) => ({ ...served, keys, name: "tollgate" as const })
    )
  }
  const [a, b] = [
    yield* of(options.other ?? process.cwd(), options["other-flags"]),
    yield* of(process.cwd(), options.flags)
  ]
  for (const contender of [a, b]) yield* measure(contender, work, Number(options.warm))
  const [as, bs, ratios]: [Array<number>, Array<number>, Array<number>] = [[], [], []]
  const p: [Array<number>, Array<number>] = [[], []]
  for (let round = 0; round < Number(options.rounds); round++) {
    const order = round % 2 === 0
    const first = yield* measure(order ? a : b, work, Number(options.seconds))
    const second = yield* measure(order ? b : a, work, Number(options.seconds))
    const [x, y] = order ? [first, second] : [second, first]
    as.push(x.cpuPerRequest)
    bs.push(y.cpuPerRequest)
    p[0].push(x.firstP50)
    p[1].push(y.firstP50)
    ratios.push(y.cpuPerRequest / x.cpuPerRequest)
  }
  process.stdout.write(
    `other ${quartiles(as)} µs, here ${quartiles(bs)} µs a request (quartiles); median of ratios ${median(ratios).toFixed(3)}; ` +
      `first byte p50 ${median(p[0]).toFixed(0)} and ${median(p[1]).toFixed(0)} µs\n`
  )
})

await Effect.runPromise(Effect.scoped(ab))
process.exit(0)
