/**
 * From an identified caller and a decoded request to a `Permit`: scope, model, counters, intent, in the order of
 * refusal of contract §5. Each step is a gate; what they decide is the permit, and there is no other way to one.
 */
import { Effect, type Scope } from "effect"
import { Audit } from "../audit/Audit.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import type { Caller, Scope as KeyScope } from "../domain/Caller.ts"
import { BackendFailed, Forbidden, type GatewayError } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { InferenceKind, InferenceRequest } from "../domain/Inference.ts"
import { issue, type Permit } from "../domain/Permit.ts"
import { Budget } from "../gates/Budget/Budget.ts"
import { Discovery } from "../gates/Discovery/Discovery.ts"
import { Limiter } from "../gates/Limiter/Limiter.ts"
import { type Ask, Meter, type Verdict } from "../gates/Meter/Meter.ts"
import { Aftercare } from "./Aftercare.ts"
import type { Exchange } from "./Exchange.ts"
import { claimsOf, restoring } from "./headroom.ts"
import { suits } from "./suits.ts"

const scopeOf = {
  chat: "chat",
  generate: "chat",
  embed: "embeddings",
  embeddings: "embeddings",
  // Any valid key may look at what it may use.
  show: undefined
} as const satisfies Record<InferenceKind, KeyScope | undefined>

/**
 * Output tokens held when a request is admitted, beside its prompt; a stream that outgrows them holds more as it
 * goes. Small, so that many short answers fit in a small budget at once.
 */
export const expectedOutput = 256

export const admit = Effect.fnUntraced(function* (
  exchange: Exchange,
  key: Evidence<"KeyStore", Caller>,
  request: InferenceRequest,
  maxTokens: number
): Effect.fn.Return<
  Permit,
  GatewayError,
  Discovery | Limiter | Budget | Meter | Audit | CircuitBreaker | Aftercare | Scope.Scope
> {
  const [discovery, limiter, budget, audit] = [yield* Discovery, yield* Limiter, yield* Budget, yield* Audit]
  const caller = key.value
  exchange.model = request.model
  const scope = scopeOf[request.kind]
  if (scope !== undefined && !caller.scopes.has(scope)) return yield* new Forbidden({ what: "scope" })

  const model = yield* discovery.resolve(caller, request.model)
  exchange.model = model.value.name
  exchange.modelResolved = true
  yield* suits(request, model.value)

  const verdict = yield* reserve(exchange, caller, {
    id: exchange.arrival.requestId,
    tokens: request.promptEstimate + Math.min(maxTokens, expectedOutput),
    // A description occupies the model no more than a list does.
    slot: request.kind !== "show"
  })
  if (verdict._tag === "Refused") exchange.headroom = verdict.headroom
  const rate = yield* limiter.judge(verdict)
  const reservation = yield* budget.judge(verdict)
  yield* refuseWhileOpen

  const intent = yield* audit.open({
    arrival: exchange.arrival,
    caller,
    model: model.value.name,
    streamed: exchange.streamed,
    reservation: reservation.value,
    promptEstimate: request.promptEstimate
  })
  exchange.opened = true
  return issue({ KeyStore: key, Discovery: model, Limiter: rate, Budget: reservation, Audit: intent })
})

/**
 * Takes hold of the counters. The reservation is noted in the exchange in the same uninterruptible step, so that
 * its finaliser knows of it; one that may have been made without an answer is undone later.
 */
const reserve = Effect.fnUntraced(function* (exchange: Exchange, caller: Caller, ask: Ask) {
  const [meter, aftercare] = [yield* Meter, yield* Aftercare]
  const claims = yield* claimsOf(caller)
  const attempt = meter.reserve(claims, ask).pipe(
    Effect.tap((verdict) =>
      Effect.sync(() => {
        if (verdict._tag !== "Reserved") return
        exchange.reservation = verdict.reservation
        exchange.headroom = verdict.headroom
      })
    ),
    Effect.tapError(() => aftercare.later(`cancel ${ask.id}`, meter.cancel({ id: ask.id, claims }))),
    Effect.uninterruptible
  )
  return yield* restoring<Verdict>(caller, attempt)
})

/** Spares an open breaker's refusals the intent row; the breaker itself decides again when the call is made. */
const refuseWhileOpen = Effect.gen(function* () {
  const breaker = yield* CircuitBreaker
  if ((yield* breaker.state) === "open") return yield* new BackendFailed({ fault: "circuit-open" })
})
