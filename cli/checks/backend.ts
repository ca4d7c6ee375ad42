/** Checks of the model server. */
import { Effect } from "effect"
import { Backend } from "../../src/backend/Backend.ts"
import { type Check, failed, ok, took, warning } from "./Check.ts"
import { oldestVersion } from "../../src/backend/ollama/decodePinged.ts"
import { explain } from "../../src/observability/explain.ts"

/** Whether it answers, with which models, and whether it is new enough. */
export const backendStatus: Effect.Effect<ReadonlyArray<Check>, never, Backend> = Effect.gen(function* () {
  const backend = yield* Backend
  const [time, models] = yield* Effect.timed(backend.models)
  const ms = took(time)
  const { tooOld } = yield* backend.ping
  return [
    models.length === 0
      ? warning(
          "backend",
          `it answers (${ms}) and has no models`,
          "pull a model: until then every model request is refused with 403"
        )
      : ok("backend", `${models.length === 1 ? "1 model" : `${models.length} models`}, ${ms}`),
    ...(tooOld === undefined
      ? []
      : [
          warning(
            "backend version",
            tooOld,
            `take Ollama ${oldestVersion} or later: an older one is not tried`
          )
        ])
  ]
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
