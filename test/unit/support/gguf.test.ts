/** The file format of the real server's models, read back by its own rules. */
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { writeGguf } from "../../support/ollama/gguf.ts"
import { vocabularySize, weights } from "../../support/ollama/tinyModels.ts"

const temporary = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(path.join(tmpdir(), "tgg-"))),
  (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
)

it.effect(
  "when tensors are written, then each starts at a multiple of 32 after the head, and missing values are zero",
  () =>
    Effect.gen(function* () {
      const file = path.join(yield* temporary, "a.gguf")
      yield* Effect.promise(() =>
        writeGguf(file, {
          metadata: { "general.architecture": { type: "string", value: "x" } },
          tensors: [
            { name: "hole", shape: [3, 5], type: "f16" },
            { name: "half", shape: [3], type: "f16", values: Float32Array.of(1, -0.5, 65504) },
            { name: "full", shape: [1, 2], type: "f32", values: Float32Array.of(0.25, 0) }
          ]
        })
      )
      const bytes = yield* Effect.promise(() => readFile(file))
      assert.strictEqual(bytes.toString("latin1", 0, 4), "GGUF")
      assert.deepStrictEqual(
        [bytes.readUInt32LE(4), bytes.readBigUInt64LE(8), bytes.readBigUInt64LE(16)],
        [3, 3n, 1n]
      )
      const at = bytes.indexOf("full") + 4
      assert.deepStrictEqual(
        [bytes.readUInt32LE(at), bytes.readBigUInt64LE(at + 4), bytes.readBigUInt64LE(at + 12)],
        [2, 2n, 1n],
        "columns come before rows"
      )
      assert.strictEqual(bytes.readUInt32LE(at + 20), 0, "single precision")
      const start = bytes.length - 32 - Number(bytes.readBigUInt64LE(at + 24))
      assert.strictEqual(start % 32, 0)
      assert.isTrue(bytes.subarray(start, start + 32).every((byte) => byte === 0))
      assert.deepStrictEqual(
        [0, 2, 4].map((offset) => bytes.readUInt16LE(start + 32 + offset)),
        [0x3c00, 0xb800, 0x7bff]
      )
      assert.strictEqual(bytes.readFloatLE(start + 64), 0.25)
    })
)

it("when a model has one-hot vectors, then it has no more tokens than they can tell apart", () => {
  for (const model of [weights.tiny, weights.slow]) {
    const table = model.tensors.find(({ name }) => name === "token_embd.weight")
    assert.isAtMost(vocabularySize, table?.shape[1] ?? 0)
  }
})
