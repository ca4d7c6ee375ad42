/** What is held when a request is admitted, and that nobody begins on a lease that has ended. */
import { randomUUIDv7 } from "node:crypto"
import { assert, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { TestClock } from "effect/testing"
import { Audit } from "../../../src/audit/Audit.ts"
import { AuditMemory } from "../../../src/audit/memory.ts"
import { CircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import { CircuitOpen } from "../../../src/domain/Errors.ts"
import type { Caller } from "../../../src/domain/Caller.ts"
import { Discovery } from "../../../src/gates/models/Discovery.ts"
import { FairQueue } from "../../../src/gates/queue/FairQueue.ts"
import { makeOpenIntent } from "../../../src/request/openIntent.ts"
import { makeRequestContext } from "../../../src/request/RequestContext.ts"
import { makeReserve } from "../../../src/request/reserve.ts"
import { makeWaitForPlace } from "../../../src/request/waitForPlace.ts"
import { arrivalOf, askedOf, callOf, callerWith, verified } from "../../support/permits.ts"
import { layerPorts, leaseS } from "../../support/ports.ts"
import { noon } from "../../support/records.ts"

/** Admits a chat of an estimated 40 tokens whose intent takes so long to be written. */
const admitting = Effect.fnUntraced(function* (requestId: string, budget: number, intentMs: number) {
  const audit = yield* Audit
  const slow = Audit.of({
    ...audit,
    open: (queued) => Effect.andThen(TestClock.adjust(intentMs), audit.open(queued))
  })
  const caller = { ...callerWith("all"), budgets: { total: budget } }
  const { request } = callOf({ model: "m", promptEstimate: 40, promptBytes: 160 })
  const arrival = { ...arrivalOf(requestId), arrivedAt: noon }
  const context = makeRequestContext(arrival, 0, true)
  return yield* Effect.gen(function* () {
    const [reserve, waitForPlace] = [yield* makeReserve, yield* makeWaitForPlace]
    const openIntent = yield* makeOpenIntent
    const model = yield* (yield* Discovery).resolve(verified(caller), askedOf(request, arrival))
    return yield* openIntent(context, yield* waitForPlace(context, yield* reserve(context, model)))
  }).pipe(Effect.scoped, Effect.provideService(Audit, slow), Effect.result)
})

/** Reserves for requests one after the other, and counts those whose intent was prepared. */
const preparing = (
  limits: Partial<Caller["limits"]>,
  requests: number,
  more: { readonly limited?: boolean; readonly isOpen?: boolean } = {}
) =>
  Effect.gen(function* () {
    const [audit, breaker, queue] = [yield* Audit, yield* CircuitBreaker, yield* FairQueue]
    const prepared: Array<string> = []
    const watched = Audit.of({
      ...audit,
      prepare: (model, expected) => {
        prepared.push(expected.id)
        audit.prepare(model, expected)
      }
    })
    const caller = { ...callerWith("all"), limits: { ...callerWith("all").limits, tpm: 100_000, ...limits } }
    const { request } = callOf({ model: "m", promptEstimate: 40, promptBytes: 160 })
    const reserve = yield* makeReserve.pipe(
      Effect.provideService(Audit, watched),
      Effect.provideService(FairQueue, { ...queue, limited: more.limited ?? false }),
      Effect.provideService(CircuitBreaker, {
        ...breaker,
        ...(more.isOpen === true ? { check: () => new CircuitOpen({ retryAfterS: 1 }) } : {})
      })
    )
    for (let n = 0; n < requests; n++) {
      const context = makeRequestContext({ ...arrivalOf(randomUUIDv7()), arrivedAt: noon }, 0, true)
      const model = yield* (yield* Discovery).resolve(verified(caller), askedOf(request, context.arrival))
      yield* Effect.exit(reserve(context, model))
      assert.strictEqual(context.prepared, prepared.includes(context.arrival.requestId))
    }
    return prepared.length
  }).pipe(
    Effect.provide(layerPorts),
    // Around midnight no admission is expected.
    (run) => Effect.andThen(TestClock.setTime(noon), run)
  )

it.effect("when requests are admitted, then the intents of all but the first are prepared", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* preparing({ concurrent: 100 }, 20), 19)
  })
)

it.effect(
  "when requests are refused one after the other, then at most the first refusal has a prepared intent",
  () =>
    Effect.gen(function* () {
      // What is left of the minute is known.
      assert.strictEqual(yield* preparing({ rpm: 5, concurrent: 100 }, 100), 4)
      // How many slots are taken is not.
      assert.strictEqual(yield* preparing({ concurrent: 5 }, 50), 5)
    })
)

it.effect(
  "when a request may have to wait in the queue, or the breaker is open, then no intent is prepared",
  () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* preparing({ concurrent: 100 }, 5, { limited: true }), 0)
      assert.strictEqual(yield* preparing({ concurrent: 100 }, 5, { isOpen: true }), 0)
    })
)

const ids = ["a", "b", "c"].map((letter) => `01a1fe92-0000-7000-8000-00000000000${letter}`)
const [first = "", second = "", third = ""] = ids

it.effect("when little remains, then the prompt and one token of the answer are still held in full", () =>
  Effect.gen(function* () {
    const { intents } = yield* AuditMemory
    for (const id of [first, second]) assert.isTrue(Result.isSuccess(yield* admitting(id, 150, 0)))
    const held = (id: string) => intents.get(id)?.intent.reservation.held
    assert.deepStrictEqual([held(first), held(second)], [140, 41])
    const refused = yield* admitting(third, 150, 0)
    assert.strictEqual(Result.isFailure(refused) ? refused.failure._tag : "", "BudgetExhausted")
  }).pipe(Effect.provide(layerPorts))
)

it.effect(
  "when the lease ended before the intent was written, then the request is refused: its hold may be another's",
  () =>
    Effect.gen(function* () {
      assert.isTrue(Result.isSuccess(yield* admitting(first, 1000, leaseS * 1000 - 1)))
      const late = yield* admitting(second, 1000, leaseS * 1000)
      assert.strictEqual(Result.isFailure(late) ? late.failure._tag : "", "Unavailable")
    }).pipe(Effect.provide(layerPorts))
)
