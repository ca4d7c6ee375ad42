import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { budgetTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const showBudget = Command.make(
  "show-budget",
  { key: flags.prefix("key") },
  Effect.fnUntraced(function* ({ key }) {
    const registry = yield* Registry
    const states = yield* registry.showBudgets(key)
    yield* show(states, budgetTable(states))
  })
).pipe(
  Command.withDescription("Show the budgets of a key, and what was spent of them according to the ledger"),
  Command.withExamples([{ command: "tollgate show-budget --key tg_4fJ2kQ9sX" }])
)
