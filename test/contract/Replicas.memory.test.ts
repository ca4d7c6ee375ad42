import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { layerMemory } from "../../src/replicas/memory.ts"
import { forgetAfterS, Replicas } from "../../src/replicas/Replicas.ts"
import { suite } from "./Replicas.ts"

suite("memory", layerMemory)

it.effect(
  "when a process has been silent for an hour, then the report of another one removes it: memory",
  () =>
    Effect.gen(function* () {
      const { list, report } = yield* Replicas
      yield* report({ id: "silent", host: "a", version: "1.0.0", gauges: {} })
      yield* TestClock.adjust((forgetAfterS + 1) * 1000)
      assert.strictEqual((yield* list).rows[0]?.silentS, forgetAfterS + 1)
      yield* report({ id: "alive", host: "b", version: "1.0.0", gauges: {} })
      assert.deepStrictEqual(
        (yield* list).rows.map(({ id }) => id),
        ["alive"]
      )
    }).pipe(Effect.provide(layerMemory))
)
