/**
 * What every call to the backend has in common, whichever way it answers: it is noted as under way, its lease is kept
 * alive, and a failure before the answer costs the caller nothing.
 */
import { Effect } from "effect"
import type { Refused } from "../backend/faults.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Exchange } from "./Exchange.ts"
import { Hold } from "./Hold.ts"
import type { Ports } from "./Ports.ts"

export const makeCalling = ({ discovery, leases, meter }: Ports) =>
  Effect.fnUntraced(function* <A, R>(
    exchange: Exchange,
    request: InferenceRequest,
    maxTokens: number,
    call: Effect.Effect<A, Refused, R>
  ): Effect.fn.Return<{ readonly answer: A; readonly hold: Hold }, Refused, R> {
    exchange.promptEstimate = request.promptEstimate
    exchange.promptBytes = request.promptBytes
    exchange.maxTokens = maxTokens
    exchange.sent = true
    const hold = new Hold(exchange, meter)
    leases.keep(hold)
    const answer = yield* Effect.tapError(call, (error) => {
      // A backend that gave nothing, or was given no time to, is charged nothing.
      exchange.sent = false
      return error._tag === "Forbidden" ? discovery.refresh : Effect.void
    })
    return { answer, hold }
  })

export type Calling = ReturnType<typeof makeCalling>
