/** The command line: joins the commands with what they need, and turns each failure into a line and an exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Exit } from "effect"
import { version } from "../src/version.ts"
import { settingsChecks } from "./checks/settings.ts"
import { interrupted } from "./exit.ts"
import type { Parts } from "./Needs.ts"
import { runCommandLine } from "./program.ts"

/** A part of a module that is loaded only by the command that needs it, so that the others start several times as fast. */
const from =
  <M>(load: () => Promise<M>) =>
  <A, E, R>(part: (module: M) => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Effect.promise(load), part)

const database = from(() => import("./live/database.ts"))
const cache = from(() => import("./live/cache.ts"))
const backend = from(() => import("./live/backend.ts"))

const needs: Parts = {
  registry: database(({ registry }) => registry),
  records: database(({ records }) => records),
  calendar: database(({ calendar }) => calendar),
  books: cache(({ books }) => books),
  database: database((live) => live.database),
  models: backend(({ models }) => models),
  replicas: database(({ replicas }) => replicas),
  status: [database(({ status }) => status), cache(({ status }) => status), backend(({ status }) => status)],
  doctor: [
    settingsChecks,
    database(({ doctor }) => doctor),
    cache(({ doctor }) => doctor),
    backend(({ status }) => status)
  ],
  serve: from(() => import("../src/serve.ts"))(({ serve }) => serve)
}

const codeWhenInterrupted = process.argv[2] === "serve" ? 0 : interrupted

runCommandLine(needs, version, process.argv.slice(2)).pipe((main) =>
  NodeRuntime.runMain(main, {
    disableErrorReporting: true,
    // Commands return their exit code. A gateway that stopped after a signal exits with 0.
    teardown: (exit, onExit) =>
      onExit(Exit.isSuccess(exit) && typeof exit.value === "number" ? exit.value : codeWhenInterrupted)
  })
)
