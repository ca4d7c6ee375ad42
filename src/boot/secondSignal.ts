/** The first signal lets what runs come to its end; a second one means now. */
import { writeSync } from "node:fs"
import { constants } from "node:os"
import { Effect } from "effect"

/** npm passes on what the terminal has sent to all of its processes already: one key press may arrive twice. */
const samePressMs = 1000

/** For the life of the process. What is cut here has its intent: the next gateway charges and audits it. */
export const exitOnSecondSignal = Effect.sync(() => {
  let first: number | undefined
  const onSignal = (signal: NodeJS.Signals) => {
    first ??= performance.now()
    if (performance.now() - first < samePressMs) return
    writeSync(2, "tollgate: stopped at once; what was running is settled by the next gateway\n")
    process.exit(128 + constants.signals[signal])
  }
  process.on("SIGINT", onSignal)
  process.on("SIGTERM", onSignal)
})
