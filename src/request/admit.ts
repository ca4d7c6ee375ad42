/**
 * From an identified caller and a decoded request to a `Permit`: scope, model, counters, intent, in the order of
 * refusals. Each step is a gate; what they decide is the permit, and there is no other way to one.
 */
import { Effect, type Scope } from "effect"
import type { Caller, Scope as KeyScope } from "../domain/Caller.ts"
import { Forbidden, type GatewayError, Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { InferenceKind, InferenceRequest } from "../domain/Inference.ts"
import { issue, type Permit } from "../domain/Permit.ts"
import type { ReserveRequest, Verdict } from "../gates/meter/Meter.ts"
import type { RequestContext } from "./RequestContext.ts"
import { claimsOf, restoring } from "./remaining.ts"
import { outputPlanOf, tokensToHold } from "./outputPlan.ts"
import type { Ports } from "./Ports.ts"
import { dropUnsupported, checkCapabilities } from "./capabilities.ts"
import { makeWaitForPlace } from "./waitForPlace.ts"

const scopeOf = {
  chat: "chat",
  generate: "chat",
  embed: "embeddings",
  embeddings: "embeddings",
  // Any valid key may look at what it may use.
  show: undefined
} as const satisfies Record<InferenceKind, KeyScope | undefined>

export const makeAdmit = (ports: Ports) => {
  const { settlements, audit, breaker, budget, discovery, leases, limiter, meter, rates } = ports
  const waitForPlace = makeWaitForPlace(ports)

  /**
   * Takes hold of the counters. The reservation is noted in the request in the same uninterruptible step, so that
   * its finaliser knows of it; one that may have been made without an answer is undone later.
   */
  const reserve = (context: RequestContext, caller: Caller, ask: ReserveRequest) => {
    const claims = claimsOf(ports, caller)
    const attempt = meter.reserve(claims, ask).pipe(
      Effect.map((verdict) => {
        if (verdict._tag === "Reserved") {
          context.reservation = verdict.reservation
          context.headroom = verdict.headroom
        }
        return verdict
      }),
      Effect.tapError(() => settlements.retry(`cancel ${ask.id}`, meter.cancel({ id: ask.id, claims })))
    )
    // What others used comes first: on counters that were not told of it somebody would be one too many.
    const paid = Effect.andThen(settlements.flush(claims.account), attempt)
    return restoring<Verdict>(ports, caller, Effect.uninterruptible(paid))
  }

  return Effect.fnUntraced(function* (
    context: RequestContext,
    key: Evidence<"KeyStore", Caller>,
    request: InferenceRequest,
    maxTokens: number
  ): Effect.fn.Return<Permit, GatewayError, Scope.Scope> {
    const caller = key.value
    context.model = request.model
    const scope = scopeOf[request.kind]
    if (scope !== undefined && !caller.scopes.has(scope)) return yield* new Forbidden({ what: "scope" })

    const model = yield* discovery.resolve(caller, request.model)
    context.model = model.value.name
    context.modelResolved = true
    yield* checkCapabilities(request, model.value)

    let since = leases.now()
    const speaks = rates.speaks(caller.keyId, model.value.name)
    const plan = outputPlanOf(dropUnsupported(request, model.value), model.value, speaks)
    context.plan = plan
    const ask: ReserveRequest = {
      id: context.arrival.requestId,
      // The ledger books the least of it even when this process dies.
      ...tokensToHold(plan, request.promptEstimate, maxTokens),
      // A description occupies the model no more than a list does.
      slot: request.kind !== "show"
    }
    const verdict = yield* reserve(context, caller, ask)
    if (verdict._tag === "Refused") context.headroom = verdict.headroom
    const rate = yield* limiter.judge(verdict)
    const reservation = yield* budget.judge(verdict)
    // After the claims, so that nothing is promised twice, and before anything is written about a request that may leave.
    if (ask.slot) since = (yield* waitForPlace(context, caller, ask.tokens)) ?? since
    // Spares an open breaker's refusals the intent row; the breaker itself decides again when the call is made.
    yield* breaker.check(caller)

    const intent = yield* audit.open({
      arrival: context.arrival,
      caller,
      model: model.value.name,
      streamed: context.streamed,
      reservation: reservation.value,
      promptEstimate: request.promptEstimate
    })
    context.opened = true
    // A process that was paused in between may have been taken for dead, and its hold been given to others.
    if (leases.lapsed(since)) {
      return yield* new Unavailable({ gate: "Limiter", cause: "the lease ended before the request began" })
    }
    const permit = issue({
      KeyStore: key,
      Discovery: model,
      Limiter: rate,
      Budget: reservation,
      Audit: intent
    })
    context.permit = permit
    return permit
  })
}

export type Admit = ReturnType<typeof makeAdmit>
