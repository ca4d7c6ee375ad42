import { Effect } from "effect"
import { Command } from "effect/cli"
import { type Check, checkTable } from "../checks/Check.ts"
import { Reported } from "../exit.ts"
import { show } from "../terminal.ts"

export interface DoctorNeeds {
  /** each of them never fails: what went wrong is a check */
  readonly checks: ReadonlyArray<Effect.Effect<ReadonlyArray<Check>>>
}

export const makeDoctor = (needs: DoctorNeeds) =>
  Command.make(
    "doctor",
    {},
    Effect.fnUntraced(function* () {
      const checks = (yield* Effect.all(needs.checks, { concurrency: "unbounded" })).flat()
      yield* show({ checks }, checkTable(checks))
      if (checks.some(({ state }) => state === "failed")) return yield* new Reported()
    })
  ).pipe(
    Command.withDescription("Check settings, stores and model server, and show how to repair what is wrong"),
    Command.withExamples([{ command: "tollgate doctor" }])
  )
