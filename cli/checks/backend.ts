/** Checks of the model server. */
import { Effect } from "effect"
import { Backend } from "../../src/backend/Backend.ts"
import { type Check, failed, ok, took, warning } from "./Check.ts"
import { explain } from "../../src/observability/explain.ts"

/** Whether it answers, and with which models. */
export const backendStatus: Effect.Effect<ReadonlyArray<Check>, never, Backend> = Effect.gen(function* () {
  const [time, models] = yield* Effect.timed(Backend.use((backend) => backend.models))
  const ms = took(time)
  return models.length === 0
    ? [
        warning(
          "backend",
          `it answers (${ms}) and has no models`,
          "pull a model: until then every model request is refused with 403"
        )
      ]
    : [ok("backend", `${models.length === 1 ? "1 model" : `${models.length} models`}, ${ms}`)]
}).pipe(
  Effect.catch(({ cause, fault }) =>
    Effect.succeed([
      failed(
        "backend",
        cause === undefined ? fault : explain(cause),
        "check BACKEND_URL, and that the model server runs"
      )
    ])
  )
)
