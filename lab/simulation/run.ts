/**
 * `npm run simulate -- --seed 8812 --steps 200000`: plays one seed, or with `--seeds 1..1000` all of them. The exit code is 1 when
 * an invariant breaks; then it prints the seed, the event, the invariant, and the last 200 lines of the trace.
 *
 * `--until EVENT --trace` prints every line up to an event, `--shrink` looks for fewer events and fewer kinds of faults that
 * break the same, `--without kill,pause` leaves faults out, `--first` stops at the first seed that breaks something.
 */
import { setImmediate } from "node:timers/promises"
import { parseArgs } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { invariants } from "./Invariants.ts"
import { type Options, type Result, shrink, simulate } from "./simulate.ts"
import type { Told } from "../../test/support/seeded/Simulation.ts"

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    seeds: { type: "string" },
    steps: { type: "string", default: "2500" },
    until: { type: "string" },
    without: { type: "string", default: "" },
    first: { type: "boolean", default: false },
    trace: { type: "boolean", default: false },
    shrink: { type: "boolean", default: false }
  }
})

const lineOf = ({ at, step, what, who }: Told): string => `${step} ${at.toFixed(1)} ms ${who}: ${what}`
const [first = 1, last = first] = (values.seed ?? values.seeds ?? "1..200").split("..").map(Number)
const given: Options = {
  steps: Number(values.steps),
  until: values.until === undefined ? undefined : Number(values.until),
  without: new Set(values.without.split(",").filter((fault) => fault !== ""))
}

const commandOf = (seed: number, { steps, without = new Set() }: Options): string =>
  `npm run simulate -- --seed ${seed} --steps ${steps}${without.size === 0 ? "" : ` --without "${[...without].join(",")}"`}`

const report = ({ failure, seed }: Result, options: Options): string =>
  failure === undefined
    ? ""
    : [
        ...(values.trace ? [] : failure.told.map(lineOf)),
        `seed ${seed}, event ${failure.step}: broken: "${failure.invariant}" (${invariants[failure.invariant]})`,
        failure.why,
        `again: ${commandOf(seed, options)} --until ${failure.step} --trace`
      ].join("\n")

const main = Effect.gen(function* () {
  const startedAt = performance.now()
  const tell = values.trace ? (told: Told) => void process.stdout.write(`${lineOf(told)}\n`) : undefined
  let [broken, seeds] = [0, 0]
  for (let seed = first; seed <= last && !(values.first && broken > 0); seed += 1) {
    seeds += 1
    // Node frees what weak references hold only between two turns of its loop.
    yield* Effect.promise(() => setImmediate())
    const result = simulate(seed, { ...given, tell })
    if (result.failure === undefined) continue
    broken += 1
    const options = values.shrink ? shrink(result, given) : given
    yield* Console.log(report(values.shrink ? simulate(seed, options) : result, options))
  }
  const seconds = (performance.now() - startedAt) / 1000
  // A trace is the same each time, and how long it took is not.
  if (!values.trace)
    yield* Console.log(
      `${seeds} seeds in ${seconds.toFixed(1)} s, ${Math.round((60 * seeds) / seconds)} a minute: ${broken} broke an invariant`
    )
  if (broken > 0) process.exitCode = 1
})

NodeRuntime.runMain(main)
