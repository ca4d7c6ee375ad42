/** More tokens for a key or a tenant until a time (`ExtraBudget` of domain/Limits.ts). */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import type { KeyChange, TenantChange } from "../domain/attributes.ts"
import { StoredExtra } from "../domain/storedRules.ts"
import { oneRow } from "../infra/rows.ts"
import { mustBe, withRegistryDown } from "./Errors.ts"
import { readDeadline } from "./keys.ts"
import type { Deadline } from "./period.ts"
import type { BudgetState, KeyInfo, TenantInfo } from "./rows.ts"
import * as Values from "./Values.ts"

const extraOf = oneRow({ extraBudget: StoredExtra })

/** null: none, from now on */
type Given = { readonly tokens: number; readonly until: Deadline } | null

interface Owners<E1, E2, E3, E4> {
  readonly changeKey: (prefix: string, change: KeyChange) => Effect.Effect<KeyInfo, E1>
  readonly changeTenant: (tenant: string, change: TenantChange) => Effect.Effect<TenantInfo, E2>
  readonly showBudgets: (prefix: string) => Effect.Effect<ReadonlyArray<BudgetState>, E3>
  readonly showTenantBudgets: (tenant: string) => Effect.Effect<ReadonlyArray<BudgetState>, E4>
}

export const makeExtraBudgets = <E1, E2, E3, E4>(
  sql: SqlClient.SqlClient,
  calendar: Calendar,
  owners: Owners<E1, E2, E3, E4>
) => {
  /** It takes the place of one that is in force. */
  const changeOf = Effect.fnUntraced(function* (states: ReadonlyArray<BudgetState>, given: Given) {
    if (given === null) return { extraBudget: null }
    const tokens = yield* Values.validate("tokens", Values.extraTokens, given.tokens)
    if (states.every(({ budget }) => budget === null))
      return yield* mustBe("tokens", "for an owner with a budget: nothing bounds the tokens of this one")
    const until = yield* withRegistryDown(readDeadline(sql, "until", given.until, calendar))
    const spent = states.find(({ period }) => period === "total")?.spent ?? 0
    return { extraBudget: { tokens, upTo: spent + tokens, until } }
  })
  return {
    /** It may have ended. */
    tenantExtra: (tenant: string) =>
      withRegistryDown(
        extraOf(sql`SELECT extra_budget AS "extraBudget" FROM tenants WHERE name = ${tenant}`)
      ),
    /** Of a key and those that share its account. Returns what is in force. */
    addBudget: Effect.fnUntraced(function* (prefix: string, given: Given) {
      const change = yield* changeOf(yield* owners.showBudgets(prefix), given)
      return (yield* owners.changeKey(prefix, change)).extraBudget
    }),
    addTenantBudget: Effect.fnUntraced(function* (tenant: string, given: Given) {
      const change = yield* changeOf(yield* owners.showTenantBudgets(tenant), given)
      return (yield* owners.changeTenant(tenant, change)).extraBudget
    })
  }
}
