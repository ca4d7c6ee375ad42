/**
 * Divides the memory of a process. `build/start.js` imports this file before anything else is loaded, for the limit of V8's heap, so
 * it imports nothing of the gateway.
 */
import { totalmem } from "node:os"

const mib = 1024 * 1024

/** A process without requests (110 to 130 MiB), and the rows that wait for a store. */
const idleBytes = 160 * mib
/** A connection with its buffers, and the first bytes of a body that comes on it. Measured: 14 to 18 KB. */
export const connectionBytes = 16_384
const mostConnections = 16_384
/** A body with objects and texts takes about this many times its bytes while it is decoded (`http/dialect/strictJson.ts`). */
const bodyFactor = 16
/** Without a container the machine belongs to others too. */
const mostOfMachine = 2048 * mib

export interface MemoryPlan {
  /** what the process may take, in bytes */
  readonly limit: number
  readonly connections: number
  /** for requests and their answers */
  readonly ledger: number
  /** for old objects of V8 */
  readonly heap: number
}

/**
 * `maxBytes`: `MEMORY_MAX_BYTES`. Without it the limit of the container counts, else half of the machine's memory. Half of what is
 * left for requests is for garbage: V8 collects old objects when they have doubled (`startup/v8Flags.ts`).
 */
export const planOf = (maxBytes?: number): MemoryPlan => {
  const container = process.constrainedMemory()
  const limit =
    maxBytes ??
    (container > 0 && container < totalmem() ? container : Math.min(totalmem() / 2, mostOfMachine))
  const connections = Math.min(mostConnections, Math.floor(limit / 8 / connectionBytes))
  return {
    limit,
    connections,
    ledger: Math.max(16 * mib, Math.floor((limit - idleBytes - connections * connectionBytes) / 2)),
    heap: Math.floor(limit * 0.55)
  }
}

/** Whether some bodies of `bodyBytes` have no room, or no tenant but one. */
export const isTight = ({ ledger }: MemoryPlan, bodyBytes: number): boolean =>
  ledger < Math.max(64 * mib, bodyFactor * bodyBytes)

/** Flags of Node for this plan. V8 reads them only at its start. A smaller process has a smaller young generation, too. */
export const flagsOf = ({ heap, limit }: MemoryPlan): ReadonlyArray<string> => [
  `--max-old-space-size=${Math.floor(heap / mib)}`,
  ...(limit < mostOfMachine ? ["--max-semi-space-size=16"] : [])
]
