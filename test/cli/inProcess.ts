/** Runs the command line in the test's own process: the same commands, lines and exit codes, at a tenth of the time. */
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Option } from "effect"
import { SqlClient } from "effect/sql"
import { TimeZone } from "../../src/domain/Calendar.ts"
import { TestConsole } from "effect/testing"
import { backendStatus } from "../../cli/checks/backend.ts"
import { ok } from "../../cli/checks/Check.ts"
import { databaseChecks, databaseStatus } from "../../cli/checks/database.ts"
import { settingsChecks } from "../../cli/checks/settings.ts"
import type { Parts } from "../../cli/Needs.ts"
import { runCommandLine } from "../../cli/program.ts"
import { guards } from "../../src/backend/ollama/guards/guards.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"
import { layerPostgres, Registry } from "../../src/admin/Registry.ts"
import { Books, Counters, layerPostgres as layerBooks } from "../../src/admin/books/Books.ts"
import { Records } from "../../src/admin/records/Records.ts"
import { layerPostgres as layerReplicas, Replicas } from "../../src/replicas/Replicas.ts"
import { modelNamed } from "../support/permits.ts"
import { quickHash } from "../support/quickHash.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import type { Ran } from "./tollgate.ts"

const noBackend = Layer.mock(Backend, {
  guards,
  models: Effect.fail(new BackendFailed({ fault: "unreachable", cause: new Error("hidden-word") }))
})

/** A database of its own with the registry on it. */
export const Admin = layerPostgres({
  hash: quickHash,
  defaults: { rpm: 60, tpm: 100_000, concurrent: 4 }
}).pipe(Layer.provideMerge(TestPostgres))

const text = (lines: ReadonlyArray<unknown>): string => lines.map((line) => `${String(line)}\n`).join("")

export const tollgateWith =
  (backend: Layer.Layer<Backend>) =>
  (...args: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const pg = Layer.succeed(PgClient.PgClient, yield* PgClient.PgClient)
      const database = Layer.succeed(SqlClient.SqlClient, sql)
      const made = <I, S>(key: Context.Key<I, S>, layer: Layer.Layer<I, Error>) =>
        Effect.map(Layer.build(layer), Context.get(key))
      // Looks without a pause: the tests have no traffic.
      const books = layerBooks({ leaseS: 30, looks: { everyMs: 0 } }).pipe(
        Layer.provide([
          pg,
          Layer.succeed(Counters, Option.getOrUndefined(yield* Effect.serviceOption(Counters)))
        ])
      )
      const needs: Parts = {
        registry: Effect.succeed(yield* Registry),
        records: made(Records, Layer.provide(Records.layer, database)),
        books: made(Books, books),
        database: Effect.succeed(sql),
        calendar: Effect.succeed(yield* TimeZone),
        models: Effect.provide(
          Effect.flatMap(Backend, ({ models }) => models),
          backend
        ),
        replicas: made(Replicas, Layer.provide(layerReplicas, pg)),
        status: [
          Effect.provide(databaseStatus, database),
          Effect.succeed([ok("cache", "not used")]),
          Effect.provide(backendStatus, backend)
        ],
        doctor: [settingsChecks, Effect.provide(databaseChecks(false), database)],
        serve: Effect.void
      }
      const before = {
        out: (yield* TestConsole.logLines).length,
        err: (yield* TestConsole.errorLines).length
      }
      const code = yield* runCommandLine(needs, "0.0.0", args)
      const ran: Ran = {
        code,
        stdout: text((yield* TestConsole.logLines).slice(before.out)),
        stderr: text((yield* TestConsole.errorLines).slice(before.err))
      }
      return ran
    })

/** With a model server that does not answer. */
export const tollgateHere = tollgateWith(noBackend)

/** The words of one line. */
export const line = (text: string) => tollgateHere(...text.split(" "))

/** With a model server that has these models. */
export const tollgateWithModels = (...names: ReadonlyArray<string>) =>
  tollgateWith(Layer.mock(Backend, { guards, models: Effect.succeed(names.map(modelNamed)) }))

/** The same beside a gateway, whose tests have no console of their own. */
export const tollgateBeside = (...args: ReadonlyArray<string>) =>
  tollgateHere(...args).pipe(Effect.provide(TestConsole.layer))

/** A file with the text, in a folder of its own. */
export const fileOf = (text: string): string => {
  const file = path.join(mkdtempSync(path.join(tmpdir(), "tollgate-cli-")), "file.yaml")
  writeFileSync(file, text)
  return file
}
