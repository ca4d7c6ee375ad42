/** In a process of its own: the flags of a process cannot be taken back. */
import { execFileSync } from "node:child_process"
import { pathToFileURL } from "node:url"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"

const flags = pathToFileURL(path.resolve(import.meta.dirname, "../../../src/startup/v8Flags.ts")).href

/**
 * 40 MB are kept, and 80 MB wait as long as two collections of young objects and more: they are alive, then garbage. Prints the
 * most MiB of old space.
 */
const script = `
import { getHeapSpaceStatistics } from "node:v8"
import { Effect } from "effect"
import { prepareToServe } from ${JSON.stringify(flags)}
Effect.runSync(prepareToServe)
const list = () => Array.from({ length: 1000 }, (_, i) => i + 0.5)
const kept = Array.from({ length: 5000 }, list)
globalThis.gc()
const waiting = Array.from({ length: 10000 }, () => undefined)
let most = 0
for (let n = 0; n < 50000; n += 1) {
  waiting[n % waiting.length] = list()
  if (n % 200 !== 0) continue
  await new Promise((resolve) => setImmediate(resolve))
  const old = getHeapSpaceStatistics().find(({ space_name }) => space_name === "old_space")
  most = Math.max(most, old.space_used_size / 2 ** 20)
}
console.log(Math.round(most), kept.length)
`
/** The size of the heap is V8's on a machine of 16 GiB, the room for young objects that in a container of 1 GiB. */
const options = [
  "--max-old-space-size=4096",
  "--max-semi-space-size=16",
  "--expose-gc",
  "--input-type=module"
]
const aliveMiB = 125
const halfOfYoungMiB = 16

it("when much that was alive becomes garbage, then it is collected before old space is more than twice of what is alive", () => {
  const env = { ...process.env, NODE_OPTIONS: "" }
  const printed = execFileSync(process.execPath, [...options, "-e", script], { encoding: "utf8", env })
  // With V8's own bound it is more than 300.
  assert.isBelow(Number.parseInt(printed, 10), aliveMiB * 2 + halfOfYoungMiB + 20)
})
