/**
 * The heap of a worker. V8 lets the heap of a process grow to half of the memory of its container or machine, and knows nothing
 * of other processes there. So the heaps of several workers could grow beyond the memory, and the kernel would kill them where
 * V8 could have collected. Here each worker has its share of that half.
 */
import { totalmem } from "node:os"

/** The least and the most that V8 takes of itself, MiB. */
const leastMiB = 256
const mostMiB = 4096

const isAboutHeap = (flag: string): boolean => /--max[-_](old[-_]space|heap)[-_]size/.test(flag)

export interface Surroundings {
  readonly execArgv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string | undefined>>
  /** of the container, bytes; more than the machine has when there is no limit */
  constrainedMemory(): number
}

/** Flags for the start of each worker: none when the operator has set a size, which is then that of each worker. */
export const heapFlagsOf = (
  workers: number,
  around: Surroundings,
  machineBytes: number = totalmem()
): ReadonlyArray<string> => {
  if ([...around.execArgv, around.env["NODE_OPTIONS"] ?? ""].some(isAboutHeap)) return []
  const constrained = around.constrainedMemory()
  const bytes = constrained > 0 ? Math.min(constrained, machineBytes) : machineBytes
  const share = Math.floor(bytes / 2 ** 20 / 2 / workers)
  return [`--max-old-space-size=${Math.min(mostMiB, Math.max(leastMiB, share))}`]
}
