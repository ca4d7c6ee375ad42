import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

/** Small, because V8 makes a full collection of its own for each 64 MiB of buffers, also of other tests. */
const bufferBytes = 64 * 1024
const buffers = 50

/**
 * Calls `use` with fifty buffers, one after the other, and says how many are still in memory after `scavenges` collections of
 * young objects. What was made before is in old space by then. Nothing but the garbage of `use` may hold a buffer.
 */
export const heldAfter = (scavenges: number, use: (buffer: Uint8Array) => void): number => {
  setFlagsFromString("--expose-gc")
  const gc: unknown = runInNewContext("gc")
  if (typeof gc !== "function") throw new Error("no gc")
  gc()
  const before = process.memoryUsage().arrayBuffers
  for (let n = 0; n < buffers; n++) use(new Uint8Array(bufferBytes))
  for (let n = 0; n < scavenges; n++) gc({ type: "minor" })
  return (process.memoryUsage().arrayBuffers - before) / bufferBytes
}
