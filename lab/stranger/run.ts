/**
 * `npm run stranger`: what somebody who never saw this does first, timed: `npm start` and a question in a browser. `-- --compose`
 * and `-- --helm` do what the operations guide says for one machine and for Kubernetes (`compose.ts`, `helm.ts`).
 */
import { arch, cpus, platform, totalmem } from "node:os"
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { throughCompose } from "./compose.ts"
import { throughHelm } from "./helm.ts"
import { throughNpmStart } from "./npmStart.ts"
import { say, timed } from "./steps.ts"

const { values: given } = parseArgs({
  options: { compose: { type: "boolean", default: false }, helm: { type: "boolean", default: false } }
})

const stranger = Effect.gen(function* () {
  const gib = (totalmem() / 2 ** 30).toFixed(0)
  yield* say(`${platform()} ${arch()}, ${cpus().length} × ${cpus()[0]?.model}, ${gib} GiB`)
  yield* timed(
    "from nothing to the whole answer",
    given.helm ? throughHelm : given.compose ? throughCompose : throughNpmStart
  )
})

process.exitCode = await Effect.runPromise(
  stranger.pipe(
    Effect.timeout("10 minutes"),
    Effect.scoped,
    Effect.as(0),
    Effect.catchCause((cause) => Effect.as(say(`FAILED ${cause}`), 1))
  )
)
