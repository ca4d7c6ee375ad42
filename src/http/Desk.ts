/** What every handler stands on, looked up once (`pipeline/Ports.ts` tells why), with the options of this server. */
import { Clock, Effect } from "effect"
import { Metrics } from "../audit/Metrics.ts"
import { Discovery } from "../gates/Discovery/Discovery.ts"
import { KeyStore } from "../gates/KeyStore/KeyStore.ts"
import { makeAlarm } from "../infra/Alarm.ts"
import { Pipeline } from "../pipeline/Pipeline.ts"
import { Traced } from "../pipeline/Trace.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { makeComplain } from "./complaints.ts"
import { Drain } from "../infra/Drain.ts"
import { makeMonotonicMs } from "../infra/monotonic.ts"
import { FreeWork } from "./FreeWork.ts"
import { Readiness } from "./ops.ts"
import { Patience } from "./Patience.ts"
import { RequestBodies } from "./RequestBodies.ts"
import { Tarpit } from "./Tarpit.ts"
import { UnreadAnswers } from "./UnreadAnswers.ts"

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
  patience: Patience,
  bodies: RequestBodies,
  unread: UnreadAnswers,
  traced: Traced,
  alarm: makeAlarm,
  complain: makeComplain,
  clock: Clock.Clock,
  nowMs: makeMonotonicMs
})

export type Desk = Effect.Success<typeof desk>
