/**
 * Calls the backend with a permit. It marks the call as sent, keeps the lease alive, and refunds the tokens when the
 * backend fails before its first frame.
 */
import { Effect, type Scope } from "effect"
import { Backend } from "../backend/Backend.ts"
import type { CallError } from "../backend/errors.ts"
import type { Embeddings } from "../domain/Embeddings.ts"
import { BadRequest } from "../domain/Errors.ts"
import { overflowDetail } from "../domain/promptWindow.ts"
import type { Permit } from "../domain/Evidence.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Counted } from "../domain/Usage.ts"
import { Budget } from "../gates/limits/Budget.ts"
import { ModelRates } from "../gates/limits/TokenRates.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { countersOf } from "../gates/meter/verdicts.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { PromptLog } from "../promptlog/PromptLog.ts"
import { Hold, type Restore } from "./Hold.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import { type Answer, meterStream } from "./meterStream.ts"
import type { RequestContext } from "./RequestContext.ts"
import { OutputTiming } from "./OutputTiming.ts"

export const makeForward = Effect.gen(function* () {
  const [backend, budget, discovery, leases] = [
    yield* Backend,
    yield* Budget,
    yield* Discovery,
    yield* LeaseKeeper
  ]
  const [meter, metrics, promptLog, rates] = [
    yield* Meter,
    yield* Metrics,
    yield* PromptLog,
    yield* ModelRates
  ]
  const nowMs = yield* makeMonotonicMs

  const restore: Restore = (reservation) =>
    budget.restore(reservation.claims.account, countersOf(reservation))

  /** Marks the call as sent and keeps its hold alive. */
  const send = ({ cost }: RequestContext, permit: Permit, timing?: OutputTiming): Hold => {
    cost.send(permit, nowMs(), timing)
    const hold = new Hold(cost, meter, restore)
    leases.keep(hold)
    return hold
  }

  /** A call that has failed costs nothing. */
  const failed = (
    { cost }: RequestContext,
    permit: Permit,
    error: CallError
  ): Effect.Effect<never, CallError> => {
    cost.unsend()
    const failure = Effect.fail(refusalOf(error, permit))
    // The gateway's list of models is out of date.
    return error._tag === "Forbidden" ? Effect.andThen(discovery.refresh, failure) : failure
  }

  /** Chat and generate. Succeeds with the metered answer when its first frame is in. */
  const forward = function* (
    context: RequestContext,
    permit: Permit
  ): Effect.fn.Return<Answer, CallError, Scope.Scope> {
    const { arrival, call, caller, model, request } = permit.facts
    context.transcribe(promptLog.transcript(caller, arrival, request))
    const timing = call.plan.collects ? undefined : new OutputTiming(rates, caller.keyId, model.name, nowMs)
    const hold = send(context, permit, timing)
    const frames = yield* Effect.catch(backend.forward(permit), (error) => failed(context, permit, error))
    metrics.firstFrame(nowMs() - context.arrivedMs, model.name)
    return meterStream(frames, hold, context.transcript)
  }

  /** Embeddings, with the count that they are charged. */
  const embed = Effect.fnUntraced(function* (
    context: RequestContext,
    permit: Permit
  ): Effect.fn.Return<Embeddings, CallError, Scope.Scope> {
    const { arrival, caller, request } = permit.facts
    // The prompt log stores the input, and no vectors.
    context.transcribe(promptLog.transcript(caller, arrival, request))
    send(context, permit)
    const answer = yield* Effect.catch(backend.embed(permit), (error) => failed(context, permit, error))
    context.cost.count(costOf(request, answer))
    const { source, tokensIn } = context.cost.usage
    // When the count of the backend is not believable, the client sees the count that it is charged.
    return source === "counted" ? { ...answer, promptEvalCount: tokensIn } : answer
  })

  /** The description of a model. */
  const show = (context: RequestContext, permit: Permit) =>
    Effect.suspend(() => {
      send(context, permit)
      return Effect.catch(backend.show(permit), (error) => failed(context, permit, error))
    })

  return { forward, embed, show }
})

/** A refusal of a prompt that is too long says how long it may be, as the gateway's own refusal does. */
const refusalOf = (error: CallError, { facts }: Permit): CallError =>
  error._tag === "BadRequest" && error.overflow === true && facts.window !== undefined
    ? new BadRequest({
        detail: overflowDetail(facts.window, facts.call.request.promptEstimate),
        overflow: true
      })
    : error

/**
 * Embeddings generate no output. Without a vector nothing was read. The older endpoint sends no count, so the
 * estimate is charged.
 */
const costOf = (request: InferenceRequest, answer: Embeddings): Counted | undefined => {
  if (answer.vectors.every(({ length }) => length === 0)) return { doneReason: "load" }
  if (request.kind === "embeddings") return undefined
  return {
    evalCount: 0,
    ...(answer.promptEvalCount === undefined ? {} : { promptEvalCount: answer.promptEvalCount })
  }
}
