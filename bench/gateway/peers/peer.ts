/** What a gateway by others is to the benchmark. Each is one program on one core, like Tollgate. */
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import type { Contender, ContenderName } from "../contenders.ts"

export interface Surroundings {
  readonly backendUrl: string
  /** a database of the run's Redis that no other contender uses */
  readonly redisUrl: string
}

export interface Peer {
  readonly name: ContenderName
  /** the environment variable with the path of the program, when it is there already */
  readonly variable: string
  /** whether `--peers` can install it from a registry of packages */
  readonly installs: boolean
  /** what is switched on in it */
  readonly has: string
  readonly start: (
    program: string | undefined,
    surroundings: Surroundings
  ) => Effect.Effect<Contender, unknown, Scope.Scope>
}

export const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tollgate-bench-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

/** A program that is waited for. */
export const run = (program: string, args: ReadonlyArray<string>) =>
  Effect.callback<void, Error>((resume) => {
    execFile(program, args, (error) => resume(error === null ? Effect.void : Effect.fail(error)))
  })
