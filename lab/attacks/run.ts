/**
 * `npm run attacks`: what one holder of a small key, a hostile model server and strangers can do to a gateway with its
 * default settings. Each attack has a gateway process of its own; its figures are printed with their limits, and the end is
 * 1 when one is missed.
 *
 * Arguments: `--checkout <folder>` (default: this one; another commit in a worktree gives the figures before a change),
 * `--points 1,2,3`, `--match <text of the name>`, `--patience 4` (so many times as long each, on a machine that is busy
 * otherwise), `--markdown <file>`, `--list`.
 */
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { parseArgs } from "node:util"
import { Cause, Effect, Exit } from "effect"
import { layerArena } from "./Arena.ts"
import { lineOf, markdown, type Row, rowsOf } from "./figures.ts"
import { setPatience } from "./processes.ts"
import type { Assault } from "./points/Assault.ts"
import { memory } from "./points/memory.ts"
import { money } from "./points/money.ts"
import { neighbours } from "./points/neighbours.ts"
import { places } from "./points/places.ts"
import { stores } from "./points/stores.ts"

const { values: options } = parseArgs({
  options: {
    checkout: { type: "string", default: path.resolve(import.meta.dirname, "../..") },
    points: { type: "string", default: "" },
    match: { type: "string", default: "" },
    patience: { type: "string", default: "1" },
    markdown: { type: "string", default: "" },
    list: { type: "boolean", default: false }
  }
})

setPatience(Number(options.patience))
const points = options.points === "" ? [] : options.points.split(",").map(Number)
const assaults = [...memory, ...money, ...neighbours, ...places, ...stores].filter(
  ({ name, point }) => (points.length === 0 || points.includes(point)) && name.includes(options.match)
)
const say = (text: string) => Effect.sync(() => void process.stdout.write(`${text}\n`))

const made = ({ name, point, run }: Assault) =>
  Effect.gen(function* () {
    const exit = yield* Effect.exit(Effect.scoped(run(rowsOf(point, name))))
    if (Exit.isSuccess(exit)) {
      for (const row of exit.value) yield* say(lineOf(row))
      return exit.value
    }
    const failed: Row = {
      point,
      attack: name,
      figure: "could not be made",
      value: 0,
      limit: "made",
      right: false
    }
    yield* say(`${lineOf(failed)}\n${Cause.pretty(exit.cause)}`)
    return [failed]
  })

const program = Effect.gen(function* () {
  const rows = (yield* Effect.forEach(assaults, made)).flat()
  const missed = rows.filter(({ right }) => !right)
  if (options.markdown !== "") writeFileSync(options.markdown, markdown(rows))
  yield* say(
    `${assaults.length} attacks, ${rows.filter(({ limit }) => limit !== "").length} limits, ${missed.length} missed`
  )
  for (const row of missed) yield* say(lineOf(row))
  return missed.length === 0
})

if (options.list) for (const { name, point } of assaults) process.stdout.write(`${point}  ${name}\n`)
else {
  // Told to stop, it stops what it has started first.
  const stop = new AbortController()
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => stop.abort())
  const right = await Effect.runPromise(
    program.pipe(Effect.provide(layerArena(path.resolve(options.checkout))), Effect.scoped),
    { signal: stop.signal }
  )
  process.exit(right ? 0 : 1)
}
