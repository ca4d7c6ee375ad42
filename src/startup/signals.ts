/** The first signal stops the gateway and lets requests end. A second signal, or a stop that takes too long, ends the process. */
import { writeSync } from "node:fs"
import { constants } from "node:os"
import { Effect } from "effect"

/** The terminal sends Ctrl-C to all processes and npm passes it on, so one key press may arrive twice. */
const samePressMs = 1000

/**
 * How long a stop may take after drain and grace: last lines of streams, unwritten rows, open connections. A frozen
 * database must not keep the process for ever.
 */
const lastMs = 11_000

const exitNow = (why: string, code: number): void => {
  // Requests that are cut here have an intent: another gateway charges and audits them.
  writeSync(2, `tollgate: ${why}; what was running is settled by the next gateway\n`)
  process.exit(code)
}

/** Installs handlers for the life of the process. `stopMs`: drain and grace together. */
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
