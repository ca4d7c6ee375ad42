/**
 * Starts what this process is: a gateway of one process, or, with `WORKERS`, the primary or one of its workers. Each loads
 * only what it needs: the primary serves no requests.
 */
import { Effect } from "effect"
import { settingsFrom, type StartupError } from "./startup/StartupError.ts"
import { workersOf } from "./workers/count.ts"
import { readIdentity } from "./workers/identity.ts"

export const start: Effect.Effect<void, StartupError> = Effect.gen(function* () {
  const worker = readIdentity(process.env)
  if (worker !== undefined) {
    const { serveAsWorker } = yield* Effect.promise(() => import("./serveAsWorker.ts"))
    return yield* serveAsWorker(worker)
  }
  const settings = yield* settingsFrom(process.env)
  const count = workersOf(settings)
  if (count === 1) {
    const { serve } = yield* Effect.promise(() => import("./serve.ts"))
    return yield* serve(settings)
  }
  const { supervise } = yield* Effect.promise(() => import("./workers/primary/supervise.ts"))
  return yield* supervise(settings, count)
})
