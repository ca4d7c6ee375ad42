/**
 * `npm run queue`: the fair queue on a few replicas, real Redis and Postgres, and a model server with two slots. Prints its
 * figures and ends with 1 when a limit is broken.
 *
 * Arguments: `--seconds 60` of each measurement, `--service 300` (milliseconds of an answer; longer ones are less sensitive
 * to a busy machine), `--kills 20`, `--replicas 2`, or one part alone: `--only fair|overfull|kills|cost|refusals`.
 */
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { table } from "../figures.ts"
import { closePools } from "../Load.ts"
import { layerGround } from "./Ground.ts"
import { cost, fair, kills, overfull, type Part, refusals } from "./parts.ts"

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    service: { type: "string", default: "300" },
    kills: { type: "string", default: "20" },
    replicas: { type: "string", default: "2" },
    only: { type: "string", default: "" }
  }
})
const plan = {
  seconds: Number(options.seconds),
  serviceMs: Number(options.service),
  kills: Number(options.kills)
}

const parts: ReadonlyArray<{ readonly name: string; readonly title: string; readonly run: Part }> = [
  { name: "fair", title: "One tenant with 50 parallel calls, nine with one now and then", run: fair },
  { name: "overfull", title: "The same with 60 parallel calls, of which 32 may wait", run: overfull },
  { name: "kills", title: "Replicas killed and Redis emptied under 24 parallel calls", run: kills },
  { name: "cost", title: "What an empty and a full queue cost, all replicas and Redis", run: cost },
  { name: "refusals", title: "A full queue, and clients that ask again and again", run: refusals }
]

const program = Effect.gen(function* () {
  let wrong = 0
  for (const { name, run, title } of parts) {
    if (options.only !== "" && options.only !== name) continue
    const figures = yield* run(plan).pipe(
      Effect.provide(layerGround(Number(options.replicas))),
      Effect.ensuring(closePools)
    )
    yield* Effect.sync(() => process.stdout.write(`${table(title, figures)}\n`))
    wrong += figures.filter(({ right }) => !right).length
  }
  return wrong
}).pipe(Effect.scoped)

process.exitCode = (await Effect.runPromise(program)) === 0 ? 0 : 1
