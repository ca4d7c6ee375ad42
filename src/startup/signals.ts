/** The first signal lets what runs come to its end; a second one means now, and so does an end that does not come. */
import { writeSync } from "node:fs"
import { constants } from "node:os"
import { Effect } from "effect"

/** npm passes on what the terminal has sent to all of its processes already: one key press may arrive twice. */
const samePressMs = 1000

/**
 * What a stop may take beyond the drain and the grace: last words, rows that are not written yet, connections that will
 * not close. A frozen database must not keep a process for ever.
 */
const lastMs = 11_000

const exitNow = (why: string, code: number): void => {
  // What is cut here has its intent: the next gateway charges and audits it.
  writeSync(2, `tollgate: ${why}; what was running is settled by the next gateway\n`)
  process.exit(code)
}

/** For the life of the process. `stopMs`: how long the drain and the grace may take together. */
export const handleSignals = (stopMs: number) =>
  Effect.sync(() => {
    let first: number | undefined
    const onSignal = (signal: NodeJS.Signals) => {
      if (first === undefined) {
        first = performance.now()
        setTimeout(() => exitNow("could not stop in time", 1), stopMs + lastMs).unref()
      }
      if (performance.now() - first >= samePressMs) {
        exitNow("stopped at once", 128 + constants.signals[signal])
      }
    }
    process.on("SIGINT", onSignal)
    process.on("SIGTERM", onSignal)
  })
