/** What both keepers of the secret do alike. */
import { assert, it } from "@effect/vitest"
import { type Layer } from "effect"
import { ContextSecret } from "../../src/secrets/ContextSecret.ts"
import { testWith } from "../support/testWith.ts"

export const suite = (name: string, layer: Layer.Layer<ContextSecret, unknown>): void =>
  testWith(it.live, layer)(
    `when the secret is read twice (${name}), then it has 32 bytes and is the same`,
    function* () {
      const { read } = yield* ContextSecret
      const first = yield* read
      assert.strictEqual(first.length, 32)
      assert.isTrue(first.equals(yield* read))
      assert.isAbove(new Set(first).size, 8)
    }
  )
