/** An empty folder that goes with its scope. */
import { mkdtempSync } from "node:fs"
import { rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect } from "effect"

export const temporaryFolder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(path.join(tmpdir(), "tgt-"))),
  // A server whose files these are may still be at its end.
  (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }))
)
