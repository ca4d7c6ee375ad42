/**
 * The gate for requests and tokens per minute, concurrency and budgets: one reservation claims all of them or none. The
 * counting itself is the Meter's.
 */
import { Cause, Context, Effect, Layer } from "effect"
import { type Caller, userRuleOf } from "../../domain/Caller.ts"
import { userAccountId } from "../../domain/EndUser.ts"
import { BudgetExhausted, RateLimited, Unavailable } from "../../domain/Errors.ts"
import { type Evidence, seal } from "../../domain/Evidence.ts"
import { type Headroom, isPeriod } from "../../domain/Limits.ts"
import type { PreparedRequest } from "../../domain/Inference.ts"
import { withoutDefaultTag } from "../../domain/modelName.ts"
import { noOutput, numPredictOf, outputPlanOf, tokensToHold } from "../../domain/outputPlan.ts"
import type { Claims, ModelLimits } from "../../domain/Reservation.ts"
import {
  Meter,
  type MeterDown,
  meterUnavailable,
  Missing,
  type Refused,
  type Reserved,
  type ReserveRequest
} from "../meter/Meter.ts"
import { Budget } from "./Budget.ts"
import { Reconciler } from "./Reconciler.ts"
import { SettlementQueue } from "./SettlementQueue.ts"
import { ModelHabits } from "./ModelHabits.ts"

const refusalOf = (
  { by, headroom, isSpent, limit: value, retryAfterS, scope }: Refused,
  { model }: Claims
): BudgetExhausted | RateLimited => {
  const of = scope === "model" && model !== undefined ? { model: model.name } : {}
  return isPeriod(by)
    ? new BudgetExhausted({ scope, ...of, period: by, value, isSpent, retryAfterS, headroom })
    : new RateLimited({ scope, ...of, limit: by, value, retryAfterS, headroom })
}

const generates = ({ kind }: PreparedRequest): boolean => kind === "chat" || kind === "generate"

const make = Effect.gen(function* () {
  const budget = yield* Budget
  const meter = yield* Meter
  const habits = yield* ModelHabits
  const reconciler = yield* Reconciler
  const settlements = yield* SettlementQueue

  /** One object for each reading of a key, and for each of its models with limits: what is made of it for the store is made once. */
  const known = new WeakMap<Caller | ModelLimits, Claims>()
  const claimsOf = (caller: Caller, model?: ModelLimits): Claims => {
    const before = known.get(model ?? caller)
    if (before !== undefined) return before
    const { accountId, budgets, limits, tenantBudgets, tenantId } = caller
    const ofKey = { account: { group: tenantId, key: accountId }, limits, budgets, tenantBudgets }
    const claims = model === undefined ? ofKey : { ...ofKey, model }
    known.set(model ?? caller, claims)
    return claims
  }

  /** Asks the Meter. When it misses totals, they are loaded from the ledger, and it is asked once more. */
  const withTotals = <A, B, E>(
    claims: Claims,
    question: () => Effect.Effect<A | Missing, MeterDown>,
    then: (answer: A) => Effect.Effect<B, E>
  ): Effect.Effect<B, E | Unavailable> => {
    const ask = (orElse: (missing: Missing) => Effect.Effect<B, E | Unavailable>) =>
      Effect.matchCauseEffect(question(), {
        onFailure: (cause) => Effect.failCause(Cause.map(cause, meterUnavailable)),
        onSuccess: (answer) => (answer instanceof Missing ? orElse(answer) : then(answer))
      })
    return ask((missing) =>
      // The ledger may take seconds. A client that leaves meanwhile holds nothing yet.
      Effect.flatMap(Effect.interruptible(budget.restore(claims, missing)), () =>
        ask((cause) => new Unavailable({ gate: "Budget", cause }))
      )
    )
  }

  return {
    /**
     * Claims limits and budgets, and bounds the call by what is left of them. A reservation must be settled or
     * cancelled, so it must be run where nothing is interrupted, together with its record (`request/admit.ts`).
     */
    reserve: (model: Evidence<"Discovery">) => {
      const { arrival, caller, endUser, model: resolved, outputBound, request } = model.facts
      const plan = generates(request)
        ? outputPlanOf(request, resolved, habits.speaks(caller.keyId, resolved.name))
        : noOutput
      const user = userRuleOf(caller, endUser)?.limits
      const ofModel = claimsOf(caller, caller.modelLimits?.get(withoutDefaultTag(resolved.name)))
      const claims: Claims =
        user === undefined
          ? ofModel
          : { ...ofModel, user: { id: userAccountId(caller.accountId, endUser), ...user } }
      const ask: ReserveRequest = {
        id: arrival.requestId,
        // The ledger books the least of it even when this process dies.
        ...tokensToHold(plan, request.promptEstimate, outputBound, habits.usual(caller.keyId, resolved.name)),
        // Neither a description nor a count occupies the model, so they need no slot.
        slot: request.kind !== "show" && request.kind !== "count"
      }
      const reserving = Effect.matchCauseEffect(meter.reserve(claims, ask), {
        onFailure: (cause) => {
          reconciler.compare(claims)
          // The store may have made the reservation, and its answer was lost.
          const cancelling = settlements.retry(`cancel ${ask.id}`, meter.cancel({ id: ask.id, claims }))
          return Effect.andThen(cancelling, Effect.failCause(cause))
        },
        onSuccess: (verdict) => {
          // After a refusal too: a process that died may hold the tokens that were missing.
          reconciler.compare(claims)
          return Effect.succeed(verdict)
        }
      })
      // Pending settlements of this account first: without them the counters may be too low and admit too much.
      const question = () => Effect.flatMapEager(settlements.flush(claims.account), () => reserving)
      return withTotals(claims, question, (verdict: Reserved | Refused) => {
        if (verdict._tag === "Refused") return Effect.fail(refusalOf(verdict, claims))
        const { headroom, reservation } = verdict
        // What was left at admission bounds the answer too.
        const numPredict = generates(request)
          ? numPredictOf(plan, reservation, request.promptEstimate, outputBound)
          : 0
        const call = { request, numPredict, plan }
        return Effect.succeed(
          seal.Limiter(model, { reservation, headroom, expectedTokens: ask.tokens, call })
        )
      })
    },
    /** Reads what is left for a caller. Consumes nothing. */
    headroom: (caller: Caller) => {
      const claims = claimsOf(caller)
      return withTotals(
        claims,
        () => meter.peek(claims),
        (headroom: Headroom) => Effect.succeed(headroom)
      )
    }
  }
})

export class Limiter extends Context.Service<Limiter>()("tollgate/gates/limits/Limiter", { make }) {
  static readonly layer: Layer.Layer<
    Limiter,
    never,
    Budget | Meter | ModelHabits | Reconciler | SettlementQueue
  > = Layer.effect(Limiter, make)
}
