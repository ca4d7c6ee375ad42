/** What every handler stands on, looked up once (`request/Ports.ts` tells why), with the options of this server. */
import { Clock, Effect } from "effect"
import { Metrics } from "../observability/Metrics.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import { makeMonotonicMs, makeTimer } from "../infra/time.ts"
import { Pipeline } from "../request/Pipeline.ts"
import { Traced } from "../observability/Trace.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { makeLogFailure } from "../observability/failureLog.ts"
import { Drain } from "../infra/Drain.ts"
import { FreeWork } from "./FreeWork.ts"
import { Readiness } from "./health.ts"
import { ClientTimeouts } from "./server/ClientTimeouts.ts"
import { RequestBodies } from "./server/RequestBodies.ts"
import { Tarpit } from "./server/Tarpit.ts"
import { UnreadAnswers } from "./server/UnreadAnswers.ts"

export const desk = Effect.all({
  keys: KeyStore,
  contexts: ContextSecret,
  discovery: Discovery,
  pipeline: Pipeline,
  metrics: Metrics,
  drain: Drain,
  tarpit: Tarpit,
  freeWork: FreeWork,
  readiness: Readiness,
  patience: ClientTimeouts,
  bodies: RequestBodies,
  unread: UnreadAnswers,
  traced: Traced,
  alarm: makeTimer,
  complain: makeLogFailure,
  clock: Clock.Clock,
  nowMs: makeMonotonicMs
})

export type Desk = Effect.Success<typeof desk>
