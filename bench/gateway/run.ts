/**
 * `npm run bench`: Tollgate and Bifrost against the floor, on this machine. Server on core 0; backend, stores, load and this
 * program on core 1. Contenders take turns (A B A B), and so do the works; what is printed is the median over the rounds.
 *
 * Arguments: `--rounds 3 --seconds 6`; `--only JSON` for the works whose name has that in it; `--profile <dir>` leaves a V8 CPU
 * profile of Tollgate there. Bifrost takes part when its path is given: `PEER_BIFROST=/path/to/bifrost-http`; `TOLLGATE_MAIN` is
 * another program than `build/start.js` for Tollgate. How to repeat the tables: RESULTS.md.
 */
import { cpus } from "node:os"
import { parseArgs } from "node:util"
import { Effect, type Scope } from "effect"
import { startBifrost } from "./bifrost.ts"
import * as contenders from "./contenders.ts"
import { measure, type Sample } from "./measure.ts"
import { reportOf } from "./report.ts"
import { table, type Work } from "./works.ts"

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "6" },
    only: { type: "string", default: "" },
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

/** A work, who does it, and what was measured of each. */
interface Planned {
  readonly work: Work
  readonly able: ReadonlyArray<contenders.Contender>
  readonly samples: Map<contenders.ContenderName, Array<Sample>>
}

/** Everybody who can do the work, warmed up. */
const warmUp = Effect.fnUntraced(function* (
  work: Work,
  all: ReadonlyArray<contenders.Contender>,
  warm: Set<contenders.ContenderName>
) {
  const secondsOf = ({ name }: contenders.Contender): number => {
    if (name === "floor") return warmUpS.floor
    const known = warm.has(name)
    warm.add(name)
    return known ? warmUpS.later : warmUpS.first
  }
  const able: Array<contenders.Contender> = []
  for (const contender of all) {
    if (work.only?.includes(contender.name) === false) continue
    const { rps } = yield* measure(contender, work, secondsOf(contender))
    // A contender that does not keep up with the rate has no first byte at this rate to speak of.
    if (work.rate === undefined || rps > 0.9 * work.rate) able.push(contender)
  }
  return { work, able, samples: new Map(able.map(({ name }) => [name, []])) } satisfies Planned
})

/**
 * All works, each by everybody who can do it, in turns. A round has all works, so that a machine that changes its speed
 * does so for all of them, and no work is measured while its code is still being compiled.
 */
const measureAll = Effect.fnUntraced(function* (
  works: ReadonlyArray<Work>,
  all: ReadonlyArray<contenders.Contender>
) {
  const warm = new Set<contenders.ContenderName>()
  const planned: Array<Planned> = []
  for (const work of works) planned.push(yield* warmUp(work, all, warm))
  for (let round = 1; round <= rounds; round++) {
    yield* say(`round ${round} of ${rounds}`)
    for (const { able, samples, work } of planned) {
      for (const contender of able)
        samples.get(contender.name)?.push(yield* measure(contender, work, seconds))
    }
  }
  yield* say("")
  for (const { samples, work } of planned) yield* say(reportOf(work, samples))
})

const bench: Effect.Effect<void, unknown, Scope.Scope> = Effect.gen(function* () {
  const stores = yield* contenders.makeStores
  const { url } = yield* contenders.backend
  yield* say(
    `${new Date().toISOString()}, ${cpus()[0]?.model ?? "?"} × ${cpus().length}, Node ${process.version}; ` +
      `${rounds} rounds of ${seconds} s\n`
  )
  const bifrost = process.env["PEER_BIFROST"]
  const all = [
    yield* contenders.floor(url),
    yield* contenders.tollgate(url, stores, { profile: options.profile, idleS: 2 }),
    yield* contenders.floorWithStores(url, stores),
    ...(bifrost === undefined ? [] : [yield* startBifrost(bifrost, url, say)])
  ]
  for (const { idleRss, name } of all)
    yield* say(`${name}: ${idleRss.toFixed()} MiB before the first request`)
  const works: ReadonlyArray<Work> = Object.values(table)
  yield* measureAll(
    works.filter(({ name }) => name.includes(options.only)),
    all
  )
})

await Effect.runPromise(Effect.scoped(bench))
process.exit(0)
