import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { budgetTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const showBudget = Command.make(
  "show-budget",
  flags.budgetOwner,
  Effect.fnUntraced(function* (given) {
    const registry = yield* Registry
    const owner = yield* flags.readBudgetOwner(given)
    const states = yield* "key" in owner
      ? registry.showBudgets(owner.key)
      : registry.showTenantBudgets(owner.tenant)
    yield* show(states, budgetTable(states))
  })
).pipe(
  Command.withDescription(
    "Show the budgets of a key or a tenant, and what was spent of them according to the ledger"
  ),
  Command.withExamples([
    { command: "tollgate show-budget --key tg_4fJ2kQ9sX" },
    { command: "tollgate show-budget --tenant acme" }
  ])
)
