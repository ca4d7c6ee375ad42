/** What is held when a request is admitted, and that nobody begins on a lease that has ended. */
import { assert, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { TestClock } from "effect/testing"
import { AuditMemory } from "../../../src/audit/memory.ts"
import { evidence } from "../../../src/domain/Evidence.ts"
import { makeAdmit } from "../../../src/request/admit.ts"
import { RequestContext } from "../../../src/request/RequestContext.ts"
import { ports } from "../../../src/request/Ports.ts"
import { callOf, callerWith } from "../../support/permits.ts"
import { layerPorts, leaseS } from "../../support/ports.ts"
import { noon } from "../../support/records.ts"

/** Admits a chat of an estimated 40 tokens whose intent takes so long to be written. */
const admitting = Effect.fnUntraced(function* (requestId: string, budget: number, intentMs: number) {
  const all = yield* ports
  const audit = {
    ...all.audit,
    open: (intent: Parameters<typeof all.audit.open>[0]) =>
      Effect.andThen(TestClock.adjust(intentMs), all.audit.open(intent))
  }
  const caller = { ...callerWith("all"), budgets: { total: budget } }
  const { request } = callOf({ model: "m", promptEstimate: 40, promptBytes: 160 })
  const context = new RequestContext(
    {
      requestId,
      arrivedAt: noon,
      method: "POST",
      endpoint: "/api/chat",
      clientIp: "127.0.0.1"
    },
    0
  )
  const admit = makeAdmit({ ...all, audit })
  return yield* Effect.result(admit(context, evidence("KeyStore", caller), request, 100))
})

const ids = ["a", "b", "c"].map((letter) => `01a1fe92-0000-7000-8000-00000000000${letter}`)
const [first = "", second = "", third = ""] = ids

it.effect("the prompt and a token of the answer are held in full, however little remains", () =>
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
  "a lease that ended before the intent was there admits nobody: its hold may be given to others",
  () =>
    Effect.gen(function* () {
      assert.isTrue(Result.isSuccess(yield* admitting(first, 1000, leaseS * 1000 - 1)))
      const late = yield* admitting(second, 1000, leaseS * 1000)
      assert.strictEqual(Result.isFailure(late) ? late.failure._tag : "", "Unavailable")
    }).pipe(Effect.provide(layerPorts))
)
