/** What the registry does for a key and for a tenant alike: attributes, budgets, and what single end users and models may use. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import type { Calendar } from "../domain/Calendar.ts"
import type { KeyChange, TenantChange } from "../domain/attributes.ts"
import { StoredExtra } from "../domain/storedRules.ts"
import { oneRow } from "../infra/rows.ts"
import { readBudgets } from "./budgets.ts"
import { type AdminError, mustBe, withRegistryDown } from "./Errors.ts"
import { readDeadline } from "./keys.ts"
import type { Deadline } from "./period.ts"
import {
  type KeyInfo,
  type KeyOverview,
  lockAccount,
  type Owner,
  readTenant,
  requireTenant,
  type RuleChange,
  type TenantInfo,
  withEntry
} from "./rows.ts"
import * as Values from "./Values.ts"

const extraOf = oneRow({ extraBudget: StoredExtra })

interface Parts {
  readonly keyInfo: (prefix: string) => Effect.Effect<KeyInfo, AdminError | SqlError>
  readonly showKey: (prefix: string) => Effect.Effect<KeyOverview, AdminError>
  readonly changeKey: (prefix: string, change: KeyChange) => Effect.Effect<KeyInfo, AdminError>
  readonly changeTenant: (tenant: string, change: TenantChange) => Effect.Effect<TenantInfo, AdminError>
}

export const makeOwners = (
  sql: SqlClient.SqlClient,
  calendar: Calendar,
  { changeKey, changeTenant, keyInfo, showKey }: Parts
) => {
  /** Checks and changes attributes. What is none of the owner's, or undefined, is left out. */
  const change = (owner: Owner, given: object) =>
    "key" in owner
      ? Effect.flatMap(Values.keyChange(given), (checked) => changeKey(owner.key, checked))
      : Effect.flatMap(Values.tenantChange(given), (checked) => changeTenant(owner.tenant, checked))

  /** Of a tenant, of a key, or of one of its end users by name. */
  const showBudgets = (owner: Owner, user?: string) =>
    withRegistryDown(readBudgets(sql, owner, user, calendar))

  /** Changes what one end user of a key may use, or a key, or each key of a tenant, of one model. `name`: as it is stored. */
  const changeRule = Effect.fnUntraced(
    function* (owner: Owner, rules: "userRules" | "modelRules", name: string, values: RuleChange) {
      if ("tenant" in owner) {
        yield* requireTenant(sql, owner.tenant, "FOR UPDATE")
        const { modelRules } = yield* readTenant(sql, owner.tenant)
        return yield* changeTenant(owner.tenant, { modelRules: withEntry(modelRules, name, values) })
      }
      yield* lockAccount(sql, owner.key)
      const key = yield* keyInfo(owner.key)
      const changed = withEntry<KeyInfo["userRules"][number]>(key[rules], name, values)
      return yield* changeKey(
        owner.key,
        rules === "userRules" ? { userRules: changed } : { modelRules: changed }
      )
    },
    sql.withTransaction,
    withRegistryDown
  )

  /**
   * Gives more tokens until a time (`ExtraBudget` of domain/Limits.ts), in the place of those that are in force; null: none, from now
   * on. Returns what is in force.
   */
  const addBudget = Effect.fnUntraced(function* (
    owner: Owner,
    given: { readonly tokens: number; readonly until: Deadline } | null
  ) {
    if (given === null) return (yield* change(owner, { extraBudget: null })).extraBudget
    const states = yield* showBudgets(owner)
    const tokens = yield* Values.validate("tokens", Values.extraTokens, given.tokens)
    if (states.every(({ budget }) => budget === null))
      return yield* mustBe("tokens", "for an owner with a budget: nothing bounds the tokens of this one")
    const until = yield* withRegistryDown(readDeadline(sql, "until", given.until, calendar))
    const spent = states.find(({ period }) => period === "total")?.spent ?? 0
    return (yield* change(owner, { extraBudget: { tokens, upTo: spent + tokens, until } })).extraBudget
  })

  return {
    show: (owner: Owner) =>
      "key" in owner ? showKey(owner.key) : withRegistryDown(readTenant(sql, owner.tenant)),
    change,
    changeRule,
    showBudgets,
    addBudget,
    /** It may have ended. Nothing else of the tenant is read: another attribute may be unreadable. */
    tenantExtra: (tenant: string) =>
      withRegistryDown(extraOf(sql`SELECT extra_budget AS "extraBudget" FROM tenants WHERE name = ${tenant}`))
  }
}
