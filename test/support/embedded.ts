/** Folders for embedded databases, and a few rows in them. */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect, Schema } from "effect"
import { embeddedPostgres } from "../../src/infra/embedded/EmbeddedPostgres.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { sql } from "./sql.ts"

/** A folder that is removed afterwards; `mode` of the one above it. */
export const folder = (mode: number) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const above = await fs.mkdtemp(path.join(tmpdir(), "tge-"))
      await fs.chmod(above, mode)
      return path.join(above, "data")
    }),
    // A server whose parent was killed may still be at its end.
    (name) =>
      Effect.promise(() => fs.rm(path.dirname(name), { recursive: true, force: true, maxRetries: 10 }))
  )

/** Adds a row to what earlier runs left, and counts. */
export const visits = Effect.gen(function* () {
  yield* sql`CREATE TABLE IF NOT EXISTS visits (at timestamptz DEFAULT now())`
  yield* sql`INSERT INTO visits DEFAULT VALUES`
  return (yield* sql`SELECT at FROM visits`).length
})

export const visit = (dataDir: string) =>
  Effect.scoped(
    Effect.flatMap(embeddedPostgres({ dataDir }), (url) =>
      visits.pipe(Effect.provide(layerPostgres({ url, maxConnections: 1 }), { local: true }))
    )
  )

const program = `
  import { Effect } from "effect"
  import { embeddedPostgres } from ${JSON.stringify(new URL("../../src/infra/embedded/EmbeddedPostgres.ts", import.meta.url).href)}
  Effect.runPromise(Effect.scoped(Effect.andThen(embeddedPostgres({ dataDir: process.argv.at(-1) }), (found) => {
    console.log(JSON.stringify(found.path))
    return Effect.never
  })))`

const decodePath = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.String))

/** A process that runs the database of `dataDir`; `before` are the words in front of the command. */
export const parent = (dataDir: string, before: ReadonlyArray<string> = []) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly child: ChildProcess; readonly socket: string }>((resume) => {
      const words = [...before, process.execPath, "--input-type=module", "-e", program, "--", dataDir]
      const [command = process.execPath, ...args] = words
      const child = spawn(command, args, {
        cwd: path.resolve(import.meta.dirname, "../.."),
        stdio: ["ignore", "pipe", "inherit"]
      })
      child.stdout.once("data", (text) => resume(Effect.succeed({ child, socket: decodePath(String(text)) })))
    }),
    ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
  )
