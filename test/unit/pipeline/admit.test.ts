/** What is held when a request is admitted, and that nobody begins on a lease that has ended. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import { AuditMemory, layerMemory as layerAudit } from "../../../src/audit/memory.ts"
import * as Metrics from "../../../src/audit/Metrics.ts"
import { PromptLog } from "../../../src/audit/PromptLog.ts"
import { layerCircuitBreaker } from "../../../src/backend/breaker.ts"
import { layerMemory as layerBackend, say } from "../../../src/backend/memory.ts"
import { evidence } from "../../../src/domain/Evidence.ts"
import { layerLive as layerBudget } from "../../../src/gates/Budget/live.ts"
import { layerMemory as layerDiscovery } from "../../../src/gates/Discovery/memory.ts"
import { layerLive as layerLimiter } from "../../../src/gates/Limiter/live.ts"
import { layerMemory as layerMeter } from "../../../src/gates/Meter/memory.ts"
import { makeAdmit } from "../../../src/pipeline/admit.ts"
import { Drain } from "../../../src/infra/Drain.ts"
import { Aftercare } from "../../../src/pipeline/Aftercare.ts"
import { Exchange } from "../../../src/pipeline/Exchange.ts"
import { Leases } from "../../../src/pipeline/Leases.ts"
import { ports } from "../../../src/pipeline/Ports.ts"
import { callOf, callerWith, modelNamed } from "../../support/permits.ts"
import { noon } from "../../support/records.ts"

const leaseS = 30

const world = () =>
  Layer.mergeAll(
    layerDiscovery([modelNamed("m:latest")]),
    layerLimiter,
    layerBudget,
    Layer.succeed(PromptLog, { transcript: () => undefined }),
    Aftercare.layer({ drainMs: 0 }),
    Leases.layer({ leaseS })
  ).pipe(
    Layer.provideMerge(layerMeter({ leaseS })),
    Layer.provideMerge(layerAudit),
    Layer.provideMerge(
      layerBackend({
        models: Effect.succeed([modelNamed("m:latest")]),
        reply: (_permit, { maxTokens }) => Effect.succeed(say(["x"], maxTokens))
      })
    ),
    Layer.provideMerge([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer]),
    Layer.provideMerge(Metrics.layer)
  )

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
  const exchange = new Exchange({
    requestId,
    arrivedAt: noon,
    method: "POST",
    endpoint: "/api/chat",
    clientIp: "127.0.0.1"
  })
  const admit = makeAdmit({ ...all, audit })
  return yield* Effect.result(admit(exchange, evidence("KeyStore", caller), request, 100))
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
  }).pipe(Effect.provide(world()))
)

it.effect(
  "a lease that ended before the intent was there admits nobody: its hold may be given to others",
  () =>
    Effect.gen(function* () {
      assert.isTrue(Result.isSuccess(yield* admitting(first, 1000, leaseS * 1000 - 1)))
      const late = yield* admitting(second, 1000, leaseS * 1000)
      assert.strictEqual(Result.isFailure(late) ? late.failure._tag : "", "Unavailable")
    }).pipe(Effect.provide(world()))
)
