import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { ContextSecret } from "../../src/secrets/ContextSecret.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { suite } from "./ContextSecret.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

suite("live", ContextSecret.layer.pipe(Layer.provide(layerTestPostgres())))

layer(layerTestPostgres())("the secret in the database", (it) => {
  const test = testWith(it.effect)

  test("when two replicas read it, then they read the same", function* () {
    const read = Effect.flatMap(ContextSecret, ({ read }) => read)
    const one = yield* read.pipe(Effect.provide(Layer.fresh(ContextSecret.layer)))
    const other = yield* read.pipe(Effect.provide(Layer.fresh(ContextSecret.layer)))
    assert.isTrue(one.equals(other))
  })

  testWith(it.effect, Layer.fresh(ContextSecret.layer))(
    "when it is not there, then reading fails, and works as soon as it is there again",
    function* () {
      const { read } = yield* ContextSecret
      yield* sql`UPDATE sealing_secrets SET purpose = 'other'`
      assert.strictEqual((yield* Effect.flip(read))._tag, "Unavailable")
      yield* sql`UPDATE sealing_secrets SET purpose = 'context'`
      assert.strictEqual((yield* read).length, 32)
    }
  )
})
