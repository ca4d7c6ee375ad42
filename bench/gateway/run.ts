/**
 * `npm run bench`: Tollgate, its memory twins and the peers against the floor, on this machine. Server on core 0;
 * backend, stores, load and this program on core 1. Contenders take turns (A B A B); what is printed is the median over
 * the rounds.
 *
 * Arguments: `--rounds 3 --seconds 6`; `--only short` for the works whose name has that in it; `--peers` to install and
 * measure the peers too; `--profile <dir>` leaves a V8 CPU profile of Tollgate there.
 */
import { cpus } from "node:os"
import { parseArgs } from "node:util"
import { Effect, type Scope } from "effect"
import * as contenders from "./contenders.ts"
import { measure, type Sample } from "./measure.ts"
import { peers } from "./peers.ts"
import { median, reportOf } from "./report.ts"
import { works } from "./works.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "6" },
    only: { type: "string", default: "" },
    peers: { type: "boolean", default: false },
    profile: { type: "string" }
  }
})
const [rounds, seconds] = [Number(options.rounds), Number(options.seconds)]
/**
 * V8 goes on optimising for some fifty thousand requests; until then a gateway is measured at its warming up. Seconds for
 * its first work, and for each after that, which is new to parts of it only.
 */
const warmUpS = { first: 30, later: 5, floor: 2 } as const

const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

/** From the start of the process to its first answer, five times over. */
const coldStart = (backendUrl: string, stores: contenders.Stores) =>
  Effect.forEach([1, 2, 3, 4, 5], () =>
    Effect.scoped(Effect.map(contenders.tollgate(backendUrl, stores), ({ startMs }) => startMs))
  )

const bench: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const stores = yield* contenders.makeStores()
  const { url } = yield* contenders.backend
  yield* say(
    `${cpus()[0]?.model ?? "?"} × ${cpus().length}, Node ${process.version}; ${rounds} rounds of ${seconds} s\n`
  )
  if (options.only === "") {
    const starts = yield* coldStart(url, stores)
    yield* say(`cold start to the first answer: ${median(starts).toFixed(0)} ms (median of five)\n`)
  }
  const all = [
    yield* contenders.floor(url),
    yield* contenders.tollgate(url, stores, options.profile),
    yield* contenders.twins(url),
    ...(options.peers ? yield* peers(url, stores.redisUrl, say) : [])
  ]
  const warm = new Set<contenders.ContenderName>()
  const warmUp = ({ name }: contenders.Contender): number => {
    if (name === "floor") return warmUpS.floor
    const known = warm.has(name)
    warm.add(name)
    return known ? warmUpS.later : warmUpS.first
  }
  for (const planned of works.filter(({ name }) => name.includes(options.only))) {
    const able = all.filter(({ name }) => planned.only === undefined || planned.only.includes(name))
    let saturated = 0
    for (const contender of able) {
      const { rps } = yield* measure(contender, planned, warmUp(contender))
      if (contender.name === "tollgate") saturated = rps
    }
    const work = planned.half === undefined ? planned : { ...planned, rate: Math.round(saturated / 2) }
    const samples = new Map<contenders.ContenderName, Array<Sample>>(able.map(({ name }) => [name, []]))
    for (let round = 0; round < rounds; round++) {
      for (const contender of able)
        samples.get(contender.name)?.push(yield* measure(contender, work, seconds))
    }
    yield* say(reportOf(work, samples))
  }
})

await Effect.runPromise(Effect.scoped(bench))
process.exit(0)
