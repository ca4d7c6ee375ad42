/** The CPU of the database server, when it runs on this machine. */
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Result } from "effect"

/** Seconds that the server and its processes have used so far. A process that has ended does not count. */
export const serverCpu = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const [row] = yield* pg<{
    readonly folder: string
  }>`SELECT setting AS folder FROM pg_settings WHERE name = 'data_directory'`
  const [pid] = readFileSync(path.join(row?.folder ?? "", "postmaster.pid"), "utf8").split("\n")
  let ticks = 0
  for (const process of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const stat = Result.getOrElse(
      Result.try(() => readFileSync(`/proc/${process}/stat`, "utf8")),
      () => ""
    )
    const [, parent, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    // User and system time are the 14th and 15th field.
    if (parent === pid || process === pid) ticks += Number(rest[9]) + Number(rest[10])
  }
  return ticks / 100
})
