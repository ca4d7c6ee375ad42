/**
 * `npm run bench:growth`: how the cost of a request grows with the number of keys, frames, streams, audit rows and
 * replicas. Gateway on core 0, everything else on core 1; one measurement a point, so trust the shape, not the digit.
 *
 * Arguments: `--seconds 5`; `--only replicas` for one of its parts; `--rows 10000000` for the largest audit log (ten million take minutes to make, and 7 GB).
 */
import { parseArgs } from "node:util"
import { Effect, type Scope } from "effect"
import * as contenders from "./contenders.ts"
import { fillLog, plainly, roomy } from "./log.ts"
import { measure, measureAsked, type Sample } from "./measure.ts"
import { type Read, readers } from "./readers.ts"
import type { Work } from "./works.ts"

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "5" },
    rows: { type: "string", default: "10000000" },
    only: { type: "string", default: "" }
  }
})
const seconds = Number(options.seconds)
const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

const short: Work = {
  name: "short",
  path: "/api/chat",
  model: "short",
  request: { stream: false, messages: [{ role: "user", content: "Hello" }] },
  connections: 50
}

const stream = (model: string, connections: number, frames: number): Work => ({
  name: model,
  path: "/api/chat",
  model,
  request: { messages: [{ role: "user", content: "Hello" }] },
  connections,
  frames
})

const line = (what: string, sample: Sample) =>
  say(
    `| ${what} | ${sample.rps.toFixed(0)} | ${sample.cpuPerRequest.toFixed(0)} | ` +
      `${sample.cpuPerFrame === 0 ? "" : sample.cpuPerFrame.toFixed(2)} | ` +
      `${(sample.firstP50 / 1000).toFixed(2)} | ${sample.rss.toFixed(0)} | ${sample.statuses} |`
  )

const title = (what: string) =>
  say(
    `\n| ${what} | req/s | CPU µs/request | CPU µs/frame | first byte p50 ms | RSS MiB | answers |\n|---|---|---|---|---|---|---|`
  )

/** A line each, a column for each length of the log. */
const sayReads = (lengths: ReadonlyArray<number>, reads: ReadonlyArray<ReadonlyArray<Read>>) =>
  Effect.gen(function* () {
    yield* say(
      `\n| ms, with rows in the audit log | ${lengths.join(" | ")} |\n|---|${"---|".repeat(lengths.length)}`
    )
    for (const [n, { name }] of (reads[0] ?? []).entries()) {
      yield* say(`| ${name} | ${reads.map((at) => at[n]?.ms.toFixed(2)).join(" | ")} |`)
    }
  })

type Stores = contenders.Stores
type Part = (
  tollgate: contenders.Contender,
  stores: Stores,
  backendUrl: string
) => Effect.Effect<void, unknown, Scope.Scope>

const byKeys: Part = Effect.fnUntraced(function* (tollgate, stores) {
  yield* title("keys in use")
  for (const count of [1, 10, 100, 1000]) {
    const key = [stores.keys.good, ...stores.keys.others].slice(0, count).join(",")
    // The first use of each key is an argon2 verify, which is not measured here. Each window begins with the first key again.
    const warmS = count === 1000 ? 60 : 3
    const { requests } = yield* measureAsked({ ...tollgate, key }, { ...short, connections: 1 }, warmS)
    if (requests < count) yield* say(`only ${requests} of ${count} keys were used before`)
    yield* line(String(count), yield* measureAsked({ ...tollgate, key }, short, seconds))
  }
})

const byFrames: Part = Effect.fnUntraced(function* (tollgate) {
  yield* title("frames an answer")
  for (const frames of [10, 100, 1000, 10_000]) {
    yield* line(String(frames), yield* measure(tollgate, stream(`frames-${frames}`, 10, frames), seconds))
  }
})

const byStreams: Part = Effect.fnUntraced(function* (tollgate) {
  yield* title("streams at 20 ms a frame")
  for (const streams of [1, 10, 100, 300, 1000]) {
    yield* line(
      String(streams),
      yield* measure(tollgate, stream("paced", streams, 100), Math.max(6, seconds))
    )
  }
})

const byRows: Part = Effect.fnUntraced(function* (tollgate, stores) {
  yield* title("rows in the audit log")
  const lengths: Array<number> = []
  const reads: Array<ReadonlyArray<Read>> = []
  for (let rows = 1000; rows <= Number(options.rows); rows *= 10) {
    yield* Effect.provide(fillLog(rows), plainly(stores))
    lengths.push(rows)
    reads.push(yield* readers(stores))
    // For some seconds after so many rows have come a request takes more: that is not what is measured here.
    yield* measure(tollgate, short, 10)
    yield* line(`${rows}, and its own`, yield* measure(tollgate, short, seconds))
  }
  yield* sayReads(lengths, reads)
})

const byReplicas: Part = Effect.fnUntraced(function* (tollgate, stores, backendUrl) {
  yield* title("replicas, sharing core 0")
  yield* line("1", yield* measure(tollgate, short, seconds))
  const second = yield* contenders.tollgate(backendUrl, stores)
  const both = { ...tollgate, url: `${tollgate.url},${second.url}`, key: stores.keys.good }
  yield* measureAsked(both, short, 10)
  yield* line("2 (CPU of one of them)", yield* measureAsked(both, short, seconds))
})

const parts: Readonly<Record<string, Part>> = {
  keys: byKeys,
  frames: byFrames,
  streams: byStreams,
  rows: byRows,
  replicas: byReplicas
}

const growth: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const stores = yield* contenders.makeStores(999, roomy)
  const { url } = yield* contenders.backend
  const tollgate = yield* contenders.tollgate(url, stores)
  yield* measure(tollgate, short, 10)
  for (const [name, part] of Object.entries(parts))
    if (options.only === "" || options.only === name) yield* Effect.scoped(part(tollgate, stores, url))
})

await Effect.runPromise(Effect.scoped(growth))
process.exit(0)
