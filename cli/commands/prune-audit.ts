import { Effect, Schedule } from "effect"
import { Command, Flag } from "effect/cli"
import { isSqlError } from "effect/sql/SqlError"
import { RegistryDown } from "../../src/admin/Errors.ts"
import { Records } from "../../src/admin/records/Records.ts"
import { dayMs } from "../../src/domain/Calendar.ts"
import type { Pruned } from "../../src/audit/months.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { amount, show, table } from "../terminal.ts"

/** Somebody reads or writes the month at this moment. */
const isBusy = (error: unknown): boolean =>
  error instanceof RegistryDown && isSqlError(error.cause) && error.cause.reason._tag === "LockTimeoutError"

const toTable = (removed: ReadonlyArray<Pruned>, none: string): string =>
  removed.length === 0
    ? none
    : table(
        ["TABLE", "ROWS"],
        removed.map(({ relation, rows }) => [relation, `about ${amount(rows)}`])
      )

export const pruneAudit = Command.make(
  "prune-audit",
  {
    olderThanMs: flags
      .lifetime("older-than", "Remove the months that ended so long ago: 400d or 60w, at least 1d")
      .pipe(
        Flag.filter(
          (ms) => ms % dayMs === 0,
          () => "whole days or weeks, such as 400d"
        )
      ),
    dryRun: flags.toggle("dry-run", "Show which months would be dropped; change nothing")
  },
  Effect.fnUntraced(function* ({ dryRun, olderThanMs }) {
    const days = olderThanMs / dayMs
    const records = yield* Records
    if (dryRun) {
      const months = yield* records.prunable(days)
      return yield* show({ wouldRemove: months }, toTable(months, "no month is that old"))
    }
    const step = Effect.retry(records.pruneStep(days), {
      while: isBusy,
      schedule: Schedule.spaced("1 second"),
      times: 60
    })
    const removed = new Map<string, number>()
    for (let one = yield* step; one !== undefined; one = yield* step) {
      removed.set(one.relation, (removed.get(one.relation) ?? 0) + one.rows)
    }
    const list = [...removed].map(([relation, rows]) => ({ relation, rows }))
    return yield* show({ removed: list }, toTable(list, "nothing is that old"))
  })
).pipe(
  described(
    "Drop old months of the audit whole; the ledger does not change. Needs the owner of the schema, as migrate does",
    "tollgate prune-audit --older-than 400d --dry-run",
    "tollgate prune-audit --older-than 400d"
  )
)
