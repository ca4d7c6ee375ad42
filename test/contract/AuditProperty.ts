/** Random sequences of what may happen to requests, repeated and out of order, against a plain model. */
import { randomUUIDv7 } from "node:crypto"
import { assert } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import * as fc from "fast-check"
import { Audit } from "../../src/audit/Audit.ts"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { callerOf, endOf, intentOf, noon, usageOf } from "../support/records.ts"
import { Written } from "./Audit.ts"
import { queuedFor } from "../support/permits.ts"
import { inWorld } from "../support/testWith.ts"

const held = 100
const day = 86_400_000

type Verb = "open" | "progress" | "close" | "refuse"

interface Step {
  readonly verb: Verb
  readonly request: number
  readonly tokens: number
}

const steps: fc.Arbitrary<ReadonlyArray<Step>> = fc.array(
  fc.record({
    verb: fc.constantFrom<Verb>("open", "open", "progress", "close", "refuse"),
    request: fc.nat({ max: 5 }),
    tokens: fc.nat({ max: held })
  }),
  { maxLength: 25 }
)

type Fate =
  | { readonly is: "open" }
  | { readonly is: "closed"; readonly tokens: number; readonly at: number }
  | { readonly is: "refused" }

/** What becomes of a request: an end is an end, and only a close costs anything. */
const after = (
  fate: Fate | undefined,
  { verb, tokens }: Step,
  arrivedAt: number,
  admittedAt: number
): Fate | undefined => {
  if (fate?.is === "closed" || fate?.is === "refused") return fate
  switch (verb) {
    case "open":
      return { is: "open" }
    case "progress":
      return fate
    case "close":
      return { is: "closed", tokens, at: fate === undefined ? arrivedAt : admittedAt }
    case "refuse":
      return { is: "refused" }
  }
}

export const properties = (name: string, world: Layer.Layer<Audit | Ledger | Written, unknown>) =>
  inWorld(world)(`Audit at random: ${name}`, (test) => {
    test("when random requests are opened, closed and refused, then rows, ledger and sums are those of the model", function* () {
      const [audit, ledger, written] = [yield* Audit, yield* Ledger, yield* Written]
      const context = yield* Effect.context<never>()
      const play = Effect.fnUntraced(function* (script: ReadonlyArray<Step>) {
        const callers = [callerOf(), callerOf()] as const
        // Every second request arrives the day before it is admitted.
        const intents = Array.from({ length: 6 }, (_, n) =>
          intentOf({
            caller: callers[n % 2 === 0 ? 0 : 1],
            requestId: randomUUIDv7(),
            held,
            arrivedAt: n % 3 === 0 ? noon - day : noon,
            admittedAt: noon
          })
        )
        const fates = new Map<number, Fate>()
        for (const step of script) {
          const intent = intents[step.request] ?? intentOf()
          const { arrivedAt, requestId } = intent.arrival
          const fate = after(fates.get(step.request), step, arrivedAt, intent.reservation.admittedAt)
          if (fate !== undefined) fates.set(step.request, fate)
          if (step.verb === "open") yield* audit.open(queuedFor(intent))
          if (step.verb === "progress") audit.progress(requestId, usageOf(step.tokens, 0))
          if (step.verb === "close") yield* audit.close(endOf(intent, usageOf(step.tokens, 0)))
          if (step.verb === "refuse") yield* audit.refuse(endOf(intent, usageOf(0, 0), { status: 499 }))
        }
        const expected = { 0: { day: 0, total: 0 }, 1: { day: 0, total: 0 } }
        for (const [request, intent] of intents.entries()) {
          const { requestId } = intent.arrival
          const fate = fates.get(request)
          const row = yield* written.row(requestId)
          assert.strictEqual(yield* written.hasIntent(requestId), fate?.is === "open")
          if (fate?.is === "closed") assert.deepInclude(row, { status: 200, tokens_in: fate.tokens })
          else if (fate?.is === "refused") assert.deepInclude(row, { status: 499 })
          else assert.isUndefined(row)
          const sums = expected[request % 2 === 0 ? 0 : 1]
          const tokens = fate?.is === "closed" ? fate.tokens : fate?.is === "open" ? held : 0
          sums.total += tokens
          if (fate?.is !== "closed" || fate.at === noon) sums.day += tokens
        }
        for (const which of [0, 1] as const) {
          const { keyId } = callers[which]
          assert.deepInclude(
            yield* ledger.spent({ group: callers[which].tenantId, key: keyId }, noon, "total"),
            expected[which]
          )
          assert.deepStrictEqual(yield* written.ledger(keyId), yield* written.auditSums(keyId))
        }
      })
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(steps, (script) => Effect.runPromiseWith(context)(play(script))),
          { numRuns: 40 }
        )
      )
    })
  })
