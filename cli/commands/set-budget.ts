import { Effect } from "effect"
import { Command } from "effect/cli"
import { budget } from "../../src/admin/Values.ts"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { budgetTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const setBudget = Command.make(
  "set-budget",
  {
    ...flags.budgetOwner,
    daily: flags.amountOrNone("daily", "Tokens per UTC day"),
    monthly: flags.amountOrNone("monthly", "Tokens per UTC month"),
    total: flags.amountOrNone("total", "Tokens for ever")
  },
  Effect.fnUntraced(function* (given) {
    const registry = yield* Registry
    const day = yield* flags.readAmountOrNone("daily", given.daily, budget.expected)
    const month = yield* flags.readAmountOrNone("monthly", given.monthly, budget.expected)
    const total = yield* flags.readAmountOrNone("total", given.total, budget.expected)
    if (day === undefined && month === undefined && total === undefined) {
      return yield* new InvalidValue({ field: "daily", expected: "given, or --monthly, or --total" })
    }
    const change = {
      ...(day === undefined ? {} : { day }),
      ...(month === undefined ? {} : { month }),
      ...(total === undefined ? {} : { total })
    }
    const owner = yield* flags.readBudgetOwner(given)
    const states = yield* "key" in owner
      ? registry.setBudgets(owner.key, change)
      : registry.setTenantBudgets(owner.tenant, change)
    yield* show(states, budgetTable(states))
  })
).pipe(
  Command.withDescription(
    "Set the token budgets of a key, or those that all keys of a tenant share; other periods do not change"
  ),
  Command.withExamples([
    { command: "tollgate set-budget --key tg_4fJ2kQ9sX --daily 100000 --monthly 2000000" },
    { command: "tollgate set-budget --tenant acme --monthly 50000000" },
    {
      command: "tollgate set-budget --key tg_4fJ2kQ9sX --daily none",
      description: "Remove the daily budget"
    }
  ])
)
