import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { type MigrationPlan, migrate as runMigrations, planMigrations } from "../../src/infra/Migrations.ts"
import { counted, show } from "../terminal.ts"

const describePlan = ({ found, known, minimum, pending }: MigrationPlan): string =>
  [
    found === 0 ? "the database has no schema" : `the schema of the database has version ${found}`,
    found > known
      ? `it is newer than this tollgate (${known}): nothing to do`
      : pending.length === 0
        ? "it is up to date: nothing to do"
        : `${counted(pending.length, "migration")} to run: ${pending.join(", ")}`,
    minimum === Math.max(found, known)
      ? "no older version may run on it: to go back, restore a backup"
      : `afterwards every tollgate with schema version ${minimum} or later may run on it`
  ].join("\n")

export const migrate = Command.make(
  "migrate",
  {
    plan: Flag.Boolean("plan").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Show what would run, and which older versions may run afterwards; change nothing")
    )
  },
  Effect.fnUntraced(function* ({ plan }) {
    if (plan) {
      const planned = yield* planMigrations
      return yield* show(
        {
          schema_version: planned.found,
          known_version: planned.known,
          pending: planned.pending,
          minimum_version: planned.minimum
        },
        describePlan(planned)
      )
    }
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
  Command.withExamples([
    { command: "DATABASE_URL=postgres://… tollgate migrate" },
    { command: "DATABASE_URL=postgres://… tollgate migrate --plan" }
  ])
)
