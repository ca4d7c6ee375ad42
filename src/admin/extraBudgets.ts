/** More tokens for a key or a tenant until a time (`ExtraBudget` of domain/Limits.ts). */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import { mustBe, withRegistryDown } from "./Errors.ts"
import { readDeadline } from "./keys.ts"
import type { Deadline } from "./period.ts"
import type { BudgetState } from "./rows.ts"
import * as Values from "./Values.ts"

/** null: none, from now on */
export type GivenExtra = { readonly tokens: number; readonly until: Deadline } | null

/** What it changes of an owner with these budgets. It takes the place of one that is in force. */
export const extraChange = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  states: ReadonlyArray<BudgetState>,
  given: GivenExtra,
  calendar: Calendar
) {
  if (given === null) return { extraBudget: null }
  const tokens = yield* Values.validate("tokens", Values.extraTokens, given.tokens)
  if (states.every(({ budget }) => budget === null))
    return yield* mustBe("tokens", "for an owner with a budget: nothing bounds the tokens of this one")
  const until = yield* withRegistryDown(readDeadline(sql, "until", given.until, calendar))
  const spent = states.find(({ period }) => period === "total")?.spent ?? 0
  return { extraBudget: { tokens, upTo: spent + tokens, until } }
})
