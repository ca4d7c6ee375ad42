import { Effect } from "effect"
import { Command } from "effect/cli"
import { migrate as runMigrations } from "../../src/infra/Migrations.ts"
import { counted, show } from "../terminal.ts"

export const migrate = Command.make(
  "migrate",
  {},
  Effect.fnUntraced(function* () {
    const ran = yield* runMigrations
    yield* show(
      { ran },
      ran.length === 0
        ? "the database is up to date"
        : `${counted(ran.length, "migration")}: ${ran.join(", ")}`
    )
  })
).pipe(
  Command.withDescription(
    "Bring the database schema up to date; safe at any time, also several times at once"
  ),
  Command.withExamples([{ command: "DATABASE_URL=postgres://… tollgate migrate" }])
)
