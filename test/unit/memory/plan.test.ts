/** How the memory of a process is divided, and that V8 is told. */
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import { connectionBytes, isTight, planOf } from "../../../src/memory/plan.ts"

const mib = 1024 * 1024
const gib = 1024 * mib

it("when a process may take more, then each part is larger, and all parts together fit in it", () => {
  let before = { connections: 0, heap: 0, ledger: 0 }
  for (const limit of [256 * mib, 384 * mib, 512 * mib, gib, 2 * gib, 8 * gib]) {
    const plan = planOf(limit)
    assert.isAtMost(2 * plan.ledger + plan.connections * connectionBytes, limit)
    // What requests hold may be objects of V8 for the most part.
    assert.isBelow(plan.ledger, plan.heap)
    assert.isAbove(plan.ledger, before.ledger)
    assert.isAtLeast(plan.connections, before.connections)
    before = plan
  }
  assert.strictEqual(planOf(64 * gib).connections, 16_384)
})

it("when the memory is too small for the largest bodies, then it is tight", () => {
  const body = 262_144
  assert.deepStrictEqual(
    [256, 384, 512, 1024].map((size) => isTight(planOf(size * mib), body)),
    [true, false, false, false]
  )
  assert.isTrue(isTight(planOf(512 * mib), 16 * mib))
  assert.isFalse(isTight(planOf(gib), 16 * mib))
})

it("when the gateway starts, then the heap of V8 has the limit of the plan, unless somebody sets another", () => {
  const starter = fileURLToPath(new URL("../../../build/start.js", import.meta.url))
  const tell =
    "process.stderr.write('heap '+process.getBuiltinModule('node:v8').getHeapStatistics().heap_size_limit+'\\n')"
  const heapOf = (more = "") => {
    const { stderr } = spawnSync(process.execPath, [starter], {
      encoding: "utf8",
      env: {
        PATH: process.env["PATH"],
        // It has no stores, and ends when it has read its settings.
        NODE_ENV: "production",
        MEMORY_MAX_BYTES: String(512 * mib),
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(tell)} ${more}`
      }
    })
    assert.include(stderr, "DATABASE_URL")
    return Number(/heap (\d+)\n(?!.*heap)/s.exec(stderr)?.[1])
  }
  const young = 3 * 16 * mib
  assert.closeTo(heapOf(), planOf(512 * mib).heap + young, mib)
  assert.isBelow(heapOf("--max-old-space-size=100 --max-semi-space-size=16"), 100 * mib + young + mib)
})
