import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

const objects = 50
/** V8 needs 8 bytes for each element. It sweeps buffers later, in the background, so these are lists. */
const zeros = Array.from({ length: 4096 }, () => 0)

/**
 * Calls `use` with fifty lists, one after the other, and says how many are still in memory after `scavenges` collections of
 * young objects. What was made before is in old space by then. Nothing but the garbage of `use` may hold a list.
 */
export const heldAfter = (scavenges: number, use: (list: Array<number>) => void): number => {
  setFlagsFromString("--expose-gc")
  const gc: unknown = runInNewContext("gc")
  if (typeof gc !== "function") throw new Error("no gc")
  gc()
  const before = process.memoryUsage().heapUsed
  for (let n = 0; n < objects; n++) use([...zeros])
  for (let n = 0; n < scavenges; n++) gc({ type: "minor" })
  return (process.memoryUsage().heapUsed - before) / (zeros.length * 8)
}
