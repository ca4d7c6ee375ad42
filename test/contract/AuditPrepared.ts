/** What every audit owes a request whose intent is written before the Limiter has decided, on memory and on Postgres alike. */
import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { Audit } from "../../src/audit/Audit.ts"
import { callerOf, endOf, intentOf, noon, usageOf } from "../support/records.ts"
import { modelFor, queuedFor } from "../support/permits.ts"
import { Written } from "./Audit.ts"

const day = 86_400_000

export const preparedSuite = (name: string, world: Layer.Layer<Audit | Written, unknown>) =>
  layer(world, { excludeTestServices: true })(`Audit, prepared: ${name}`, (it) => {
    it.effect(
      "when a request was prepared, then its intent is there, and it is booked on the day of its admission",
      () =>
        Effect.gen(function* () {
          const [audit, written] = [yield* Audit, yield* Written]
          const midnight = noon + day / 2
          const intent = intentOf({ arrivedAt: midnight - 1000, admittedAt: midnight + 1 })
          const { requestId } = intent.arrival
          audit.prepare(modelFor(intent), { ...intent.reservation, admittedAt: midnight - 1 })
          const proof = yield* audit.open(queuedFor(intent))
          assert.strictEqual(proof.facts.arrival.requestId, requestId)
          assert.isTrue(yield* written.hasIntent(requestId))
          yield* audit.close(endOf(intent, usageOf(7, 3)))
          assert.isFalse(yield* written.hasIntent(requestId))
          assert.deepStrictEqual(yield* written.ledger(intent.caller.keyId), [
            { day: "2026-11-22", requests: 1, tokensIn: 7, tokensOut: 3 }
          ])
          assert.deepStrictEqual(
            yield* written.auditSums(intent.caller.keyId),
            yield* written.ledger(intent.caller.keyId)
          )
        })
    )

    it.effect(
      "when prepared requests are refused at once, then each has the row of its refusal, no intent is left, and nothing is booked",
      () =>
        Effect.gen(function* () {
          const [audit, written] = [yield* Audit, yield* Written]
          const caller = callerOf(randomUUID())
          const intents = Array.from({ length: 100 }, () => intentOf({ caller }))
          yield* Effect.forEach(
            intents,
            (intent, n) =>
              Effect.gen(function* () {
                audit.prepare(modelFor(intent), intent.reservation)
                // Before its row is being written, meanwhile, and after it.
                if (n % 3 > 0) yield* Effect.sleep(n % 3)
                yield* audit.refuse(
                  endOf(intent, usageOf(0, 0), { status: 429, errorType: "rate_limit_exceeded" })
                )
              }),
            { concurrency: "unbounded", discard: true }
          )
          for (const { arrival } of intents) {
            assert.deepInclude(yield* written.row(arrival.requestId), { status: 429 })
            assert.isFalse(yield* written.hasIntent(arrival.requestId))
          }
          assert.deepStrictEqual(yield* written.ledger(caller.keyId), [])
        })
    )
  })
