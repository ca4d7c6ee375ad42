/** What every audit owes about the names of a request, on memory and on Postgres alike. */
import { assert, layer } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { Audit } from "../../src/audit/Audit.ts"
import { endOf, intentOf, refusalOf, usageOf } from "../support/records.ts"
import { queuedFor } from "../support/permits.ts"
import { Written } from "./Audit.ts"

export const namesSuite = (name: string, world: Layer.Layer<Audit | Written, unknown>) =>
  layer(world, { excludeTestServices: true })(`Audit, names: ${name}`, (it) => {
    it.effect(
      "when a request names its user and an alias, then its row has both, also when another replica closes it",
      () =>
        Effect.gen(function* () {
          const [audit, written] = [yield* Audit, yield* Written]
          const names = { alias: "fast", endUser: "ann@example.org" }
          const columns = { alias: "fast", end_user: "ann@example.org", model: "m:latest" }
          const [ended, died] = [intentOf(names), intentOf(names)]
          yield* Effect.forEach([ended, died], (intent) => audit.open(queuedFor(intent)))
          yield* audit.close(endOf(ended, usageOf(1, 2), { truncated: true }))
          yield* written.abort(died.arrival.requestId)
          assert.deepInclude(yield* written.row(ended.arrival.requestId), { ...columns, truncated: true })
          assert.deepInclude(yield* written.row(died.arrival.requestId), { ...columns, truncated: null })
          const unnamed = refusalOf()
          yield* audit.refuse(unnamed)
          assert.deepInclude(yield* written.row(unnamed.arrival.requestId), {
            alias: null,
            end_user: null,
            truncated: null
          })
        })
    )
  })
