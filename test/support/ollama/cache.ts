/** What is made once and kept: outside every checkout, so that all worktrees and CI jobs of a machine share it. */
import { existsSync } from "node:fs"
import { link, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import { homedir } from "node:os"
import * as path from "node:path"
import { setTimeout as sleep } from "node:timers/promises"

export const cacheFolder = (): string =>
  path.join(process.env["XDG_CACHE_HOME"] ?? path.join(homedir(), ".cache"), "tollgate")

const isCode = (error: unknown, code: string): boolean =>
  error instanceof Error && "code" in error && error.code === code

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return isCode(error, "EPERM") // a process of somebody else
  }
}

/** The process that holds the lock; undefined when the lock is free again. */
const holderOf = async (lock: string): Promise<number | undefined> => {
  try {
    return Number(await readFile(lock, "utf8"))
  } catch (error) {
    if (isCode(error, "ENOENT")) return undefined
    throw error
  }
}

/**
 * One process at a time does `work`; the others wait. A lock whose holder died is removed. The lock saves time only:
 * what is made appears under its name by one rename, so two processes that slip through make the same thing twice.
 */
export const withLock = async <A>(lock: string, work: () => Promise<A>): Promise<A> => {
  await mkdir(path.dirname(lock), { recursive: true })
  const mine = `${lock}.${process.pid}`
  await writeFile(mine, String(process.pid))
  try {
    for (;;) {
      try {
        // A link appears with its content: nobody reads a lock that is still empty.
        await link(mine, lock)
        break
      } catch (error) {
        if (!isCode(error, "EEXIST")) throw error
      }
      const holder = await holderOf(lock)
      if (holder !== undefined && !isRunning(holder)) await rm(lock, { force: true })
      else await sleep(200)
    }
    try {
      return await work()
    } finally {
      await rm(lock, { force: true })
    }
  } finally {
    await rm(mine, { force: true })
  }
}

/** `folder` with what `fill` puts in it; filled under another name first, so that half of it is never seen. */
export const makeOnce = async (
  folder: string,
  fill: (unfinished: string) => Promise<void>
): Promise<void> => {
  const unfinished = `${folder}.${process.pid}.unfinished`
  await rm(unfinished, { recursive: true, force: true })
  await mkdir(unfinished, { recursive: true })
  try {
    await fill(unfinished)
    // Whoever came first has made the same.
    if (!existsSync(folder)) await rename(unfinished, folder)
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}
