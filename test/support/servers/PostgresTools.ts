/**
 * A Postgres with `pg_dump` and `psql`, which the one from npm lacks: Debian's, installed or, for root, fetched. There
 * is no third way: without one the test fails.
 */
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import * as path from "node:path"
import { Effect } from "effect"
import { TestServerFailed } from "./processes.ts"

const debian = "/usr/lib/postgresql"

const programs = ["initdb", "postgres", "pg_dump", "pg_restore", "psql"]

const installed = (): string | undefined =>
  (existsSync(debian) ? readdirSync(debian) : [])
    .map((version) => path.join(debian, version))
    .findLast((folder) => programs.every((program) => existsSync(path.join(folder, "bin", program))))

const apt = (...words: ReadonlyArray<string>) =>
  spawnSync("apt-get", words, {
    encoding: "utf8",
    timeout: 240_000,
    // The package must not start a server of its own.
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" }
  }).stderr

/** The folder with its `bin`. */
export const findPostgres: Effect.Effect<string, TestServerFailed> = Effect.suspend(() => {
  let said = ""
  if (installed() === undefined && process.getuid?.() === 0) {
    const install = ["install", "-y", "--no-install-recommends", "postgresql"]
    said = apt(...install)
    if (installed() === undefined) said = apt("update") + apt(...install)
  }
  const found = installed()
  return found === undefined
    ? Effect.fail(
        new TestServerFailed({
          detail: `pg_dump and a server of its version are needed: apt-get install postgresql\n${said.slice(-1000)}`
        })
      )
    : Effect.succeed(found)
})
