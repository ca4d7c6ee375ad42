/** The readiness of the gateway: each dependency must answer every worker. */
import { Effect } from "effect"
import type { ReadinessState } from "../../http/health.ts"
import { toWorker } from "../protocol.ts"
import type { Member } from "./member.ts"

const nothingAnswers: ReadinessState = {
  stopping: false,
  database: false,
  cache: false,
  backend: false,
  modelsExpired: true,
  workersFailing: false
}

const worseOf = (a: ReadinessState, b: ReadinessState): ReadinessState => ({
  stopping: a.stopping || b.stopping,
  database: a.database && b.database,
  cache: a.cache && b.cache,
  backend: a.backend && b.backend,
  modelsExpired: a.modelsExpired || b.modelsExpired,
  workersFailing: a.workersFailing || b.workersFailing
})

/** A worker asks its dependencies for a second at most. */
const timeoutMs = 1500

/** A worker that does not answer is not ready, and so the gateway is not. Nor is one without workers. */
export const joinReadiness = (members: ReadonlyArray<Member>): Effect.Effect<ReadinessState> =>
  Effect.map(
    Effect.forEach(
      members,
      ({ channel }) =>
        Effect.orElseSucceed(channel.ask(toWorker.readiness, undefined, timeoutMs), () => nothingAnswers),
      { concurrency: "unbounded" }
    ),
    (states) => (states.length === 0 ? nothingAnswers : states.reduce(worseOf))
  )
