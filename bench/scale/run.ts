/**
 * `npm run bench:scale`: the costs that docs/scale.md reckons with, and its small simulations, on throw-away stores:
 * what a request costs each part, one busy key on several replicas, two Postgres.
 *
 * Arguments: `--only costs|ledger|postgres`.
 */
import { cpus } from "node:os"
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { costs } from "./costs.ts"
import { ledger } from "./ledger.ts"
import { postgres } from "./postgres.ts"
import type { Say } from "./report.ts"

const { values: options } = parseArgs({ options: { only: { type: "string", default: "" } } })

const say: Say = (line) => Effect.sync(() => void process.stdout.write(`${line}\n`))

const parts = [
  { name: "costs", title: "What one JSON request costs, and what it leaves behind", run: costs },
  { name: "ledger", title: "Ends of requests of one key, and of a key for each replica", run: ledger },
  { name: "postgres", title: "Two Postgres", run: postgres }
]

const program = Effect.gen(function* () {
  yield* say(
    `${new Date().toISOString()}, ${cpus()[0]?.model ?? "?"} × ${cpus().length}, Node ${process.version}`
  )
  for (const { name, title, run } of parts) {
    if (options.only !== "" && options.only !== name) continue
    yield* say(`\n${title}\n`)
    yield* Effect.scoped(run(say))
  }
})

await Effect.runPromise(program)
process.exit(0)
