/** How much heap each worker has. */
import { assert, it } from "@effect/vitest"
import { heapFlagsOf } from "../../../src/workers/primary/heap.ts"

const GiB = 2 ** 30
const around = (constrained: number, NODE_OPTIONS?: string, execArgv: ReadonlyArray<string> = []) => ({
  execArgv,
  env: { NODE_OPTIONS },
  constrainedMemory: () => constrained
})

it("when a container has a limit, then the heaps of all workers together have half of it", () => {
  assert.deepStrictEqual(heapFlagsOf(2, around(2 * GiB), 64 * GiB), ["--max-old-space-size=512"])
  assert.deepStrictEqual(heapFlagsOf(4, around(8 * GiB), 64 * GiB), ["--max-old-space-size=1024"])
})

it("when there is no limit, then they have half of the machine's memory, and each what V8 takes at most", () => {
  for (const none of [0, 2 ** 64]) {
    assert.deepStrictEqual(heapFlagsOf(2, around(none), 8 * GiB), ["--max-old-space-size=2048"])
    assert.deepStrictEqual(heapFlagsOf(2, around(none), 256 * GiB), ["--max-old-space-size=4096"])
  }
})

it("when workers are many, then each has at least what V8 takes at least", () => {
  assert.deepStrictEqual(heapFlagsOf(16, around(GiB), 64 * GiB), ["--max-old-space-size=256"])
})

it("when the operator has set the size of a heap, then it is that of each worker", () => {
  for (const flag of ["--max-old-space-size=700", "--max_old_space_size=700", "--max-heap-size=700"]) {
    assert.deepStrictEqual(heapFlagsOf(2, around(GiB, `--no-warnings ${flag}`)), [])
    assert.deepStrictEqual(heapFlagsOf(2, around(GiB, undefined, [flag])), [])
  }
})
