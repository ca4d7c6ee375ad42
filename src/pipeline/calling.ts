/**
 * What every call to the backend has in common, whichever way it answers: it is noted as under way, its lease is kept
 * alive, and a failure before the answer costs the caller nothing.
 */
import { Effect, type Scope } from "effect"
import type { Audit } from "../audit/Audit.ts"
import type { BackendFailed, BadRequest, Forbidden } from "../domain/Errors.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import { Discovery } from "../gates/Discovery/Discovery.ts"
import type { Meter } from "../gates/Meter/Meter.ts"
import type { Exchange } from "./Exchange.ts"
import { Hold } from "./Hold.ts"

export const calling = Effect.fnUntraced(function* <A, R>(
  exchange: Exchange,
  request: InferenceRequest,
  maxTokens: number,
  leaseS: number,
  call: Effect.Effect<A, BackendFailed | BadRequest | Forbidden, R>
): Effect.fn.Return<
  { readonly answer: A; readonly hold: Hold },
  BackendFailed | BadRequest | Forbidden,
  R | Discovery | Meter | Audit | Scope.Scope
> {
  exchange.promptEstimate = request.promptEstimate
  exchange.promptBytes = request.promptBytes
  exchange.maxTokens = maxTokens
  exchange.sent = true
  const hold = new Hold(exchange)
  yield* hold.heartbeat(leaseS)
  const answer = yield* call.pipe(
    Effect.tapErrorTag("Forbidden", () => Effect.flatMap(Discovery, (discovery) => discovery.refresh)),
    // A backend that gave nothing is charged nothing.
    Effect.tapError(() => Effect.sync(() => void (exchange.sent = false)))
  )
  return { answer, hold }
})
