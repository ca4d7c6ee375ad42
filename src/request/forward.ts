/**
 * Calls the backend with a permit. It marks the call as sent, keeps the lease alive, and refunds the tokens when the
 * backend fails before its first frame.
 */
import { Effect, Exit, Scope } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { Backend } from "../backend/Backend.ts"
import type { CallError } from "../backend/errors.ts"
import type { Embeddings } from "../domain/Frame.ts"
import { TimeZone } from "../domain/Calendar.ts"
import { BadRequest } from "../domain/Errors.ts"
import { overflowDetail } from "../domain/promptWindow.ts"
import type { Permit } from "../domain/Evidence.ts"
import type { PreparedRequest } from "../domain/Inference.ts"
import type { Counted } from "../domain/Usage.ts"
import { Budget } from "../gates/limits/Budget.ts"
import { ModelHabits } from "../gates/limits/ModelHabits.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { countersOf } from "../gates/meter/verdicts.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { PromptLog } from "../promptlog/PromptLog.ts"
import { Hold, type Restore } from "./Hold.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import { meterStream } from "./meterStream.ts"
import type { RequestContext } from "./RequestContext.ts"
import { OutputTiming } from "./OutputTiming.ts"

export const makeForward = Effect.gen(function* () {
  const backend = yield* Backend
  const budget = yield* Budget
  const discovery = yield* Discovery
  const leases = yield* LeaseKeeper
  const meter = yield* Meter
  const metrics = yield* Metrics
  const promptLog = yield* PromptLog
  const habits = yield* ModelHabits
  const nowMs = yield* makeMonotonicMs

  const { dayAt } = yield* TimeZone

  const restore: Restore = ({ admittedAt, claims }) =>
    budget.restore(claims, countersOf(claims, dayAt(admittedAt)))

  /** Marks the call as sent, and keeps its lease alive. */
  const send = ({ cost }: RequestContext, permit: Permit, timing?: OutputTiming): Hold => {
    const hold = new Hold(cost, meter, restore)
    cost.send(permit, leases.keep(hold), timing)
    return hold
  }

  /** A call that fails before its first frame costs nothing. */
  const refund =
    ({ cost }: RequestContext, permit: Permit) =>
    (error: CallError): Effect.Effect<never, CallError> => {
      cost.refund()
      const refusal = Effect.fail(refusalOf(error, permit))
      // The gateway's list of models is out of date.
      return error._tag === "Forbidden" ? Effect.andThen(discovery.refresh, refusal) : refusal
    }

  /**
   * Chat and generate. Succeeds with the metered answer when its first frame is in. The call and its place end with the
   * answer, which may be long before the client has read it, or with `within`.
   */
  const forward = (context: RequestContext, permit: Permit, share: AnswerShare, within: Scope.Scope) => {
    const { arrival, call, caller, model, place, request } = permit.facts
    const transcript = promptLog.transcript(caller, arrival, request)
    context.transcript = transcript
    const timing = call.plan.collects ? undefined : new OutputTiming(habits, caller.keyId, model.name, nowMs)
    const scope = Scope.forkUnsafe(within)
    // What closes the Scope without waiting is over when this returns.
    const over = (exit: Exit.Exit<unknown, unknown>) => {
      const closing = Scope.closeUnsafe(scope, exit) ?? Effect.void
      const closed = Exit.isExit(closing) ? closing : Effect.uninterruptible(closing)
      return place === undefined ? closed : Effect.andThen(closed, place.giveBack)
    }
    const hold = send(context, permit, timing)
    return Effect.matchCauseEffect(Scope.provide(backend.forward(permit, share), scope), {
      onFailure: (cause) =>
        Effect.andThen(
          Scope.close(scope, Exit.failCause(cause)),
          Effect.catch(Effect.failCause(cause), refund(context, permit))
        ),
      onSuccess: (answer) => {
        const firstFrameMs = nowMs() - context.arrivedMs
        context.cost.call = { ...context.cost.call, firstFrameMs }
        metrics.firstFrame(firstFrameMs, model.name)
        return Effect.succeed(meterStream(answer, { hold, over, transcript }))
      }
    })
  }

  /** Embeddings, with the count that they are charged. */
  const embed = Effect.fnUntraced(function* (context: RequestContext, permit: Permit, share: AnswerShare) {
    const { arrival, caller, request } = permit.facts
    // The prompt log stores the input, and no vectors.
    context.transcript = promptLog.transcript(caller, arrival, request)
    send(context, permit)
    const answer = yield* Effect.catch(backend.embed(permit, share), refund(context, permit))
    context.cost.final = costOf(request, answer)
    const { source, tokensIn } = context.cost.usage
    // When the count of the backend is not believable, the client sees the count that it is charged.
    return source === "counted" ? { ...answer, promptEvalCount: tokensIn } : answer
  })

  /** The description of a model. */
  const show = (context: RequestContext, permit: Permit, share: AnswerShare) => {
    send(context, permit)
    return Effect.catch(backend.show(permit, share), refund(context, permit))
  }

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
const costOf = (request: PreparedRequest, answer: Embeddings): Counted | undefined => {
  if (answer.vectors.every((vector) => vector === "[]")) return { doneReason: "load" }
  if (request.kind === "embeddings") return undefined
  return {
    evalCount: 0,
    ...(answer.loadDuration === undefined ? {} : { loadDuration: answer.loadDuration }),
    ...(answer.promptEvalCount === undefined ? {} : { promptEvalCount: answer.promptEvalCount })
  }
}
