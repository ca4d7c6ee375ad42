/** What a process holds: memory and descriptors, from the kernel's own books. */
import { readdirSync, readFileSync } from "node:fs"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

export interface ProcessState {
  readonly rssMiB: number
  /** the most it ever had */
  readonly peakMiB: number
  readonly descriptors: number
}

/** Undefined when there is no such process. */
export const processState = (pid: number): ProcessState | undefined => {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8")
    // A process that is ending has no memory any more, and no lines about it.
    const mib = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024
    return {
      rssMiB: mib("VmRSS"),
      peakMiB: mib("VmHWM"),
      descriptors: readdirSync(`/proc/${pid}/fd`).length
    }
  } catch {
    return undefined // it has ended
  }
}

/** Seconds of CPU that a process has used, in hundredths; 0 when there is no such process. */
export const cpuSecondsOf = (pid: number): number => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    const words = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return (Number(words[11]) + Number(words[12])) / 100
  } catch {
    return 0 // it has ended
  }
}

setFlagsFromString("--expose-gc")
const collect: () => void = runInNewContext("gc")

/** What this process's heap holds, MiB; rubbish counts only below `enough`, which is not worth collecting it. */
export const heapMiB = (enough = 0): number => {
  const used = () => process.memoryUsage().heapUsed / 2 ** 20
  if (used() > enough) collect()
  return used()
}
