/**
 * `npm run scale`: what the tests are too short for, on two replicas. Prints its figures and ends with 1 when one of
 * them is not as it has to be.
 *
 * Arguments: `--requests 20000 --kills 10`, or one part alone: `--only mixed|kills`.
 */
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { type Figure, table } from "./figures.ts"
import { kills } from "./kills.ts"
import { closePools } from "./Load.ts"
import { mixed } from "./mixed.ts"
import { layerWorld } from "./World.ts"

const { values: options } = parseArgs({
  options: {
    requests: { type: "string", default: "20000" },
    kills: { type: "string", default: "10" },
    only: { type: "string", default: "" }
  }
})

const wanted = (name: string) => options.only === "" || options.only === name

const parts = [
  {
    name: "mixed",
    title: "Mixed limits, two replicas",
    run: mixed(Number(options.requests))
  },
  { name: "kills", title: "kill -9 of a replica in mid-traffic", run: kills(Number(options.kills)) }
]

const program = Effect.gen(function* () {
  let wrong = 0
  for (const { name, title, run } of parts) {
    if (!wanted(name)) continue
    const figures: ReadonlyArray<Figure> = yield* run.pipe(
      Effect.provide(layerWorld),
      Effect.ensuring(closePools)
    )
    yield* Effect.sync(() => process.stdout.write(`${table(title, figures)}\n`))
    wrong += figures.filter(({ right }) => !right).length
  }
  return wrong
}).pipe(Effect.scoped)

process.exitCode = (await Effect.runPromise(program)) === 0 ? 0 : 1
