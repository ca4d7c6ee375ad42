/** What is held when a request is admitted, and that nobody begins on a lease that has ended. */
import { assert, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { TestClock } from "effect/testing"
import { Audit } from "../../../src/audit/Audit.ts"
import { AuditMemory } from "../../support/twins/Audit.ts"
import { seal } from "../../../src/domain/Evidence.ts"
import { Meter } from "../../../src/gates/meter/Meter.ts"
import { Discovery } from "../../../src/gates/models/Discovery.ts"
import { FairQueue } from "../../../src/gates/queue/FairQueue.ts"
import { makeAdmit } from "../../../src/request/admit.ts"
import { RequestContext } from "../../../src/request/RequestContext.ts"
import { arrivalOf, askedOf, requestOf, callerWith, verified } from "../../support/permits.ts"
import { layerPorts, leaseS } from "../../support/ports.ts"
import { noon } from "../../support/records.ts"
import { testWith } from "../../support/testWith.ts"

/** Admits a chat of an estimated 40 tokens whose intent takes so long to be written. */
const admitting = Effect.fnUntraced(function* (requestId: string, budget: number, intentMs: number) {
  const audit = yield* Audit
  const slow = Audit.of({
    ...audit,
    open: (queued) => Effect.andThen(TestClock.adjust(intentMs), audit.open(queued))
  })
  const caller = { ...callerWith("all"), budgets: { total: budget } }
  const request = requestOf({ model: "m", promptEstimate: 40, promptBytes: 160 })
  const arrival = { ...arrivalOf(requestId), arrivedAt: noon }
  const context = new RequestContext(arrival, 0, undefined)
  return yield* Effect.gen(function* () {
    const { openIntent, reserve, waitForPlace } = yield* makeAdmit
    const model = yield* (yield* Discovery).resolve(verified(caller), askedOf(request, arrival))
    return yield* openIntent(context, yield* waitForPlace(context, yield* reserve(context, model)))
  }).pipe(Effect.scoped, Effect.provideService(Audit, slow), Effect.result)
})

const ids = ["a", "b", "c"].map((letter) => `01a1fe92-0000-7000-8000-00000000000${letter}`)
const [first = "", second = "", third = ""] = ids

const test = testWith(it.effect, layerPorts)

test("when little remains, then the prompt and one token of the answer are still held in full", function* () {
  const { intents } = (yield* AuditMemory).tables
  for (const id of [first, second]) assert.isTrue(Result.isSuccess(yield* admitting(id, 150, 0)))
  const held = (id: string) => intents.get(id)?.held
  assert.deepStrictEqual([held(first), held(second)], [140, 41])
  const refused = yield* admitting(third, 150, 0)
  assert.strictEqual(Result.isFailure(refused) ? refused.failure._tag : "", "BudgetExhausted")
})

test("when the lease ended before the intent was written, then the request is refused: its hold may be another's", function* () {
  assert.isTrue(Result.isSuccess(yield* admitting(first, 1000, leaseS * 1000 - 1)))
  const late = yield* admitting(second, 1000, leaseS * 1000)
  assert.strictEqual(Result.isFailure(late) ? late.failure._tag : "", "Unavailable")
})

test("when the reservation was undone while the request waited for its place, then the request is refused: nothing would count it", function* () {
  const meter = yield* Meter
  const queueOf = (undone: boolean) =>
    FairQueue.of({
      limited: true,
      enter: (reserved) =>
        (undone ? Effect.orDie(meter.cancel(reserved.facts.reservation)) : Effect.void).pipe(
          Effect.as(
            seal.Queue(reserved, {
              place: { queuedMs: 2000, loaded: true, giveBack: Effect.succeed(0) }
            })
          )
        ),
      seeLoaded: () => undefined,
      status: () => ({ running: 0, waiting: new Map(), models: [] })
    })
  const waited = admitting(first, 1000, 0).pipe(Effect.provideService(FairQueue, queueOf(false)))
  assert.isTrue(Result.isSuccess(yield* waited))
  const undone = yield* admitting(second, 1000, 0).pipe(Effect.provideService(FairQueue, queueOf(true)))
  assert.strictEqual(Result.isFailure(undone) ? undone.failure._tag : "", "Unavailable")
})
