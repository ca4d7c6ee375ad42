/** The Limiter on the Meter: claims, what the Meter answers to them, and the call that the reservation pays for. */
import { Effect, Layer } from "effect"
import { dropUnsupported } from "../../domain/capabilities.ts"
import type { Caller } from "../../domain/Caller.ts"
import { BudgetExhausted, RateLimited, Unavailable } from "../../domain/Errors.ts"
import { seal } from "../../domain/Evidence.ts"
import type { InferenceRequest } from "../../domain/Inference.ts"
import type { Headroom } from "../../domain/Limits.ts"
import { noOutput, numPredictOf, outputPlanOf, tokensToHold } from "../../domain/outputPlan.ts"
import type { Claims } from "../../domain/Reservation.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import {
  Meter,
  type MeterDown,
  meterUnavailable,
  Missing,
  type Refused,
  type ReserveRequest,
  type Verdict
} from "../meter/Meter.ts"
import { Budget } from "./Budget.ts"
import { ExpectedAdmissions } from "./ExpectedAdmissions.ts"
import { Limiter } from "./Limiter.ts"
import { SettlementQueue } from "./SettlementQueue.ts"
import { ModelRates } from "./TokenRates.ts"

/** The totals are still missing after they were loaded, so the budget cannot be checked. */
const stillMissing = (missing: Missing): Unavailable => new Unavailable({ gate: "Budget", cause: missing })

const refusalOf = ({
  by,
  headroom,
  limit: value,
  retryAfterS,
  scope
}: Refused): BudgetExhausted | RateLimited =>
  by === "requests" || by === "tokens" || by === "concurrency"
    ? new RateLimited({ limit: by, value, retryAfterS, headroom })
    : new BudgetExhausted({ scope, period: by, value, retryAfterS, headroom })

/** What follows an answer of the Meter, and what follows none. */
interface Decision<A, B, E> {
  decide(answer: A): Effect.Effect<B, E>
  readonly undo: Effect.Effect<void>
}

const shown: Decision<Headroom, Headroom, never> = { decide: Effect.succeed, undo: Effect.void }

const generates = ({ kind }: InferenceRequest): boolean => kind === "chat" || kind === "generate"

export const layerFromMeter: Layer.Layer<Limiter, never, Budget | Meter | ModelRates | SettlementQueue> =
  Layer.effect(
    Limiter,
    Effect.gen(function* () {
      const [admissions, nowMs] = [new ExpectedAdmissions(), yield* makeMonotonicMs]
      const [budget, meter, rates, settlements] = [
        yield* Budget,
        yield* Meter,
        yield* ModelRates,
        yield* SettlementQueue
      ]

      const claimsOf = (caller: Caller): Claims => ({
        account: { group: caller.tenantId, key: caller.accountId },
        limits: caller.limits,
        budgets: caller.budgets,
        tenantBudgets: caller.tenantBudgets
      })

      /**
       * Asks the Meter. When it misses totals, they are loaded from the ledger and it is asked once more. `undo` follows a
       * question without an answer.
       */
      const withTotals = <A, B, E>(
        claims: Claims,
        question: () => Effect.Effect<A | Missing, MeterDown>,
        { decide, undo }: Decision<A, B, E>
      ): Effect.Effect<B, E | Unavailable> => {
        const ask = (whenMissing: (missing: Missing) => Effect.Effect<B, E | Unavailable>) =>
          Effect.matchEffect(question(), {
            onFailure: (down) => {
              admissions.notAdmitted(claims, nowMs())
              return Effect.andThen(undo, Effect.fail(meterUnavailable(down)))
            },
            onSuccess: (answer) => (answer instanceof Missing ? whenMissing(answer) : decide(answer))
          })
        return ask((first) => {
          admissions.lost()
          return Effect.andThen(
            // The ledger may take seconds. A client that leaves meanwhile holds nothing yet.
            Effect.interruptible(budget.restore(claims.account, first)),
            Effect.suspend(() => ask((second) => Effect.fail(stillMissing(second))))
          )
        })
      }

      const attempt = (
        claims: Claims,
        reserve: () => Effect.Effect<Verdict, MeterDown>
      ): Effect.Effect<Verdict, MeterDown> =>
        // Deliver the pending settlements of this account first: otherwise the counters may be too low and admit too
        // much.
        Effect.flatMapEager(settlements.flush(claims.account), reserve)

      return Limiter.of({
        reserve: (model, onExpected) => {
          const { arrival, caller, maxTokens, model: resolved, request } = model.facts
          const sent = dropUnsupported(request, resolved)
          const plan = generates(sent)
            ? outputPlanOf(sent, resolved, rates.speaks(caller.keyId, resolved.name))
            : noOutput
          const claims = claimsOf(caller)
          const ask: ReserveRequest = {
            id: arrival.requestId,
            // The ledger books the least of it even when this process dies.
            ...tokensToHold(plan, request.promptEstimate, maxTokens),
            // A description does not occupy the model, so it needs no slot.
            slot: request.kind !== "show"
          }
          if (onExpected !== undefined) {
            const expected = admissions.expect(claims, ask, nowMs())
            if (expected !== undefined) onExpected(expected)
          }
          let isAsked = false
          const reserve = () => {
            isAsked = true
            return meter.reserve(claims, ask)
          }
          return withTotals(claims, () => attempt(claims, reserve), {
            decide: (verdict: Exclude<Verdict, Missing>) => {
              if (verdict._tag === "Refused") {
                admissions.notAdmitted(claims, nowMs())
                return Effect.fail(refusalOf(verdict))
              }
              admissions.admitted(verdict, nowMs())
              const { headroom, reservation } = verdict
              return Effect.succeed(
                seal.Limiter(model, {
                  reservation,
                  headroom,
                  expectedTokens: ask.tokens,
                  call: {
                    request: sent,
                    // What was left at admission bounds the answer too.
                    maxTokens: generates(request)
                      ? numPredictOf(plan, reservation, request.promptEstimate, maxTokens)
                      : 0,
                    plan
                  }
                })
              )
            },
            // A reservation that may have been made without an answer is undone later.
            undo: Effect.suspend(() =>
              isAsked
                ? settlements.retry(`cancel ${ask.id}`, meter.cancel({ id: ask.id, claims }))
                : Effect.void
            )
          })
        },
        headroom: (key) =>
          Effect.suspend(() => {
            const claims = claimsOf(key.facts.caller)
            return withTotals(claims, () => meter.peek(claims), shown)
          })
      })
    })
  )
