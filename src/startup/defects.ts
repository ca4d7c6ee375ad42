/** The end of the process by a defect. */
import { writeSync } from "node:fs"
import { redact } from "../observability/redact.ts"
import { renderCause } from "../observability/renderCause.ts"

/** One text for stderr: no secret of a key, and nothing of a row or of a parsed text (`renderCause`). */
export const describeDefect = (failure: unknown): string =>
  `tollgate: stopped by a defect ${redact(renderCause(failure), true)}`

/**
 * Ends the process at an error in a callback, or a rejected promise, that nobody handles. Node would end it too, but print
 * the error with everything that it quotes. What was running is settled by another replica, or by the next start.
 */
export const endAtDefects = (): void => {
  process.on("uncaughtException", (error) => {
    try {
      writeSync(2, `${describeDefect(error)}\n`)
    } finally {
      // Also when stderr is closed, or nobody reads it: an error here would be another code.
      process.exit(1)
    }
  })
}
