/** What is made once and kept: outside every checkout, so that all worktrees and CI jobs of a machine share it. */
import { existsSync } from "node:fs"
import { link, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import { homedir } from "node:os"
import * as path from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { Effect } from "effect"
import { codeOf } from "../../src/infra/errorCode.ts"
import { isAlive } from "../../src/infra/embedded/RuntimeFile.ts"
import { TestServerFailed } from "../../test/support/servers/processes.ts"

export const cacheFolder = (): string =>
  path.join(process.env["XDG_CACHE_HOME"] ?? path.join(homedir(), ".cache"), "tollgate")

/** The process that holds the lock; undefined when the lock is free again. */
const holderOf = async (lock: string): Promise<number | undefined> => {
  try {
    return Number(await readFile(lock, "utf8"))
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined
    throw error
  }
}

const failed = (cause: unknown) =>
  new TestServerFailed({ detail: "the cache folder cannot be written", cause })

const attempt = <A>(work: (signal: AbortSignal) => Promise<A>) =>
  Effect.tryPromise({ try: work, catch: failed })

/**
 * One process at a time does `work`; the others wait. A lock whose holder died is removed. The lock saves time only:
 * what is made appears under its name by one rename, so two processes that slip through make the same thing twice.
 */
const withLock = <A, E>(lock: string, work: Effect.Effect<A, E>): Effect.Effect<A, E | TestServerFailed> =>
  Effect.suspend(() => {
    const mine = `${lock}.${process.pid}`
    let held = false
    const acquire = attempt(async (signal) => {
      await mkdir(path.dirname(lock), { recursive: true })
      await writeFile(mine, String(process.pid))
      while (!signal.aborted) {
        try {
          // A link appears with its content: nobody reads a lock that is still empty.
          await link(mine, lock)
          held = true
          return
        } catch (error) {
          if (codeOf(error) !== "EEXIST") throw error
        }
        const holder = await holderOf(lock)
        if (holder !== undefined && !isAlive(holder)) await rm(lock, { force: true })
        else await sleep(200)
      }
    })
    const release = Effect.promise(async () => {
      if (held) await rm(lock, { force: true })
      await rm(mine, { force: true })
    })
    return acquire.pipe(Effect.andThen(work), Effect.ensuring(release))
  })

/**
 * `folder` with what `fill` puts in it, made once however many processes ask at the same time. It is filled under
 * another name first, so that half of it is never seen.
 */
export const makeOnce = <E>(
  folder: string,
  fill: (unfinished: string) => Effect.Effect<void, E>
): Effect.Effect<void, E | TestServerFailed> => {
  const unfinished = `${folder}.${process.pid}.unfinished`
  const clear = Effect.promise(() => rm(unfinished, { recursive: true, force: true }))
  const make = Effect.gen(function* () {
    if (existsSync(folder)) return
    yield* clear
    yield* attempt(() => mkdir(unfinished, { recursive: true }))
    yield* fill(unfinished)
    if (!existsSync(folder)) yield* attempt(() => rename(unfinished, folder))
  }).pipe(Effect.ensuring(clear))
  return Effect.suspend(() => (existsSync(folder) ? Effect.void : withLock(`${folder}.lock`, make)))
}
