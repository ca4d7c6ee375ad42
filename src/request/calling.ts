/**
 * What every call to the backend has in common, whichever way it answers: it is noted as under way, its lease is kept
 * alive, and a failure before the answer costs the caller nothing.
 */
import { Effect } from "effect"
import type { CallError } from "../backend/errors.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { RequestContext } from "./RequestContext.ts"
import { restoreTotals } from "./remaining.ts"
import { Hold, type Restore } from "./Hold.ts"
import type { OutputPlan } from "./outputPlan.ts"
import type { Ports } from "./Ports.ts"

export const makeCalling = (ports: Ports) => {
  const { discovery, leases, meter, nowMs } = ports
  const restore: Restore = ({ caller, reservation }) =>
    caller === undefined || reservation === undefined
      ? Effect.void
      : restoreTotals(ports, caller, reservation)

  /** `maxTokens`: what is sent as `num_predict`, for each run. */
  return Effect.fnUntraced(function* <A, R>(
    context: RequestContext,
    request: InferenceRequest,
    plan: OutputPlan,
    maxTokens: number,
    call: Effect.Effect<A, CallError, R>
  ): Effect.fn.Return<{ readonly answer: A; readonly hold: Hold }, CallError, R> {
    context.promptEstimate = request.promptEstimate
    context.promptBytes = request.promptBytes
    context.maxTokens = plan.runs * maxTokens
    context.plan = plan
    context.sentAt = nowMs()
    context.sent = true
    const hold = new Hold(context, meter, restore)
    leases.keep(hold)
    const answer = yield* Effect.tapError(call, (error) => {
      // A backend that gave nothing, or was given no time to, is charged nothing.
      context.sent = false
      return error._tag === "Forbidden" ? discovery.refresh : Effect.void
    })
    return { answer, hold }
  })
}

export type Calling = ReturnType<typeof makeCalling>
