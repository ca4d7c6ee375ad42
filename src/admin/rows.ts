/** Tenants and keys as commands show and change them, and how their rows are read. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import type { BudgetUse, Period } from "../domain/Limits.ts"
import {
  type AliasDefaults,
  type KeyChange,
  KeyAttributes,
  type TenantChange,
  TenantAttributes
} from "../domain/attributes.ts"
import { makeRowReader, type Row, selected } from "../infra/rows.ts"
import type { Deadline } from "./period.ts"
import { UnknownTenant } from "./Errors.ts"

export const keyStatuses = ["active", "disabled", "revoked", "expired"] as const
export type KeyStatus = (typeof keyStatuses)[number]

/** The attributes with the budget of each period. */
export const budgetOf = {
  day: "budgetDaily",
  week: "budgetWeekly",
  month: "budgetMonthly",
  total: "budgetTotal"
} as const satisfies Record<Period, keyof KeyAttributes & keyof TenantAttributes>

export const budgetFields = [
  budgetOf.day,
  budgetOf.week,
  budgetOf.month,
  budgetOf.total,
  "extraBudget"
] as const

export const TenantInfo = Schema.Struct({
  name: Schema.String,
  ...TenantAttributes.fields,
  status: Schema.Literals(["active", "disabled"]),
  created: Schema.Date
})
export type TenantInfo = typeof TenantInfo.Type

export const KeyInfo = Schema.Struct({
  prefix: Schema.String,
  name: Schema.String,
  tenant: Schema.String,
  scopes: Schema.Array(Schema.String),
  /** `expired`: an active key past its end */
  status: Schema.Literals(keyStatuses),
  created: Schema.Date,
  expires: Schema.NullOr(Schema.Date),
  ...KeyAttributes.fields
})
export type KeyInfo = typeof KeyInfo.Type

/** A key with all that decides whether it works now. */
export const KeyOverview = Schema.Struct({
  ...KeyInfo.fields,
  /** the limits in force: its own, else the tenant's */
  effective: Schema.Struct(Struct.pick(TenantAttributes.fields, ["rpm", "tpm", "concurrent"])),
  /** whether the tenant is disabled, or may use no model: then no request of the key succeeds */
  tenantDisabled: Schema.Boolean,
  tenantWithoutModels: Schema.Boolean,
  /** when its latest request in the audit log arrived */
  lastUsed: Schema.NullOr(Schema.Date)
})
/** `budgets`: those that bind it. */
export type KeyOverview = typeof KeyOverview.Type & { readonly budgets: ReadonlyArray<BudgetState> }

export const UsageTotals = Schema.Struct({
  requests: Schema.Finite,
  tokensIn: Schema.Finite,
  /** part of `tokensIn`, as far as the model server says */
  tokensCached: Schema.Finite,
  tokensOut: Schema.Finite
})
export type UsageTotals = typeof UsageTotals.Type

/** The budget of a period, null when there is none, and the tokens that the ledger counts in it. */
export interface BudgetState {
  readonly period: Period
  readonly budget: number | null
  /** what the extra budget adds now */
  readonly extra: number
  readonly spent: number
  /** how far it is spent; null when there is none */
  readonly state: BudgetUse | null
}

/** One logged prompt and its answer, each cut at 64 KiB. `truncated`: whether one of them was cut. */
export const LoggedPrompt = Schema.Struct({
  requestId: Schema.String,
  created: Schema.Date,
  expires: Schema.Date,
  endpoint: Schema.String,
  prompt: Schema.String,
  answer: Schema.String,
  truncated: Schema.Boolean
})
export type LoggedPrompt = typeof LoggedPrompt.Type

/** Limits that are absent are the defaults of the settings. */
export interface NewTenant extends TenantChange {
  readonly name: string
}

export interface NewKey extends KeyChange {
  readonly tenant: string
  readonly name: string
  /** default: all */
  readonly scopes?: ReadonlyArray<string>
  /** lifetime from now, by the database's clock; not together with `expiresAt` */
  readonly expiresInMs?: number | undefined
  readonly expiresAt?: Deadline | undefined
  /** whether the tenant may have a live key of that name already */
  readonly allowDuplicate?: boolean
}

/** What one of several keys has of its own. */
export interface OwnValues extends KeyChange {
  readonly expiresAt?: Deadline
}

/** Keys that have most in common. */
export interface NewKeys extends Omit<NewKey, "name" | "allowDuplicate"> {
  readonly names: ReadonlyArray<string>
  /** by name, in place of what they have in common */
  readonly own?: ReadonlyMap<string, OwnValues>
}

export interface MadeKey {
  readonly name: string
  readonly prefix: string
  /** the full key */
  readonly secret: string
}

/** A key by its prefix, or a tenant by its name. */
export type Owner = { readonly key: string } | { readonly tenant: string }

type Rule = Omit<KeyAttributes["userRules"][number], "name">
/** What changes of what one end user or one model may use; null takes a value away. A model has fewer values. */
export type RuleChange = { readonly [V in keyof Rule]?: Rule[V] | null }

/** What is absent does not change. */
export interface ModelsChange {
  /** the new allowlist */
  readonly models?: ReadonlyArray<string> | undefined
  /** added to the allowlist, and taken from it */
  readonly add?: ReadonlyArray<string> | undefined
  readonly remove?: ReadonlyArray<string> | undefined
  readonly allowAll?: boolean | undefined
  /** aliases to add, or to give another model */
  readonly aliases?: { readonly [alias: string]: string } | undefined
  readonly removeAliases?: ReadonlyArray<string> | undefined
  /** of each of `aliases`; null takes a value away, and one that is absent does not change */
  readonly aliasDefaults?: { readonly [V in keyof AliasDefaults]?: AliasDefaults[V] | null }
}

/** As `apply` names them. */
export const tenantNamed = (name: unknown): string => `tenant ${String(name)}`
export const keyNamed = (prefix: unknown): string => `key ${String(prefix)}`
export const ownerNamed = (owner: Owner): string =>
  "key" in owner ? keyNamed(owner.key) : tenantNamed(owner.tenant)

export const nameOfKey = ({ prefix }: Row) => keyNamed(prefix)

export const tenantRows = makeRowReader(({ name }) => tenantNamed(name), TenantInfo)
export const keyRows = makeRowReader(nameOfKey, KeyInfo)

/** The columns of `TenantInfo`, of a row `t` of `tenants`. */
export const tenantColumns = (sql: SqlClient.SqlClient) => sql`
  t.name, ${selected(sql, "t", TenantAttributes.fields)},
  CASE WHEN t.disabled THEN 'disabled' ELSE 'active' END AS status, t.created_at AS created`

/** The entries with a changed one: null takes a value away, and an entry that says nothing goes. */
export const withEntry = <E extends { readonly name: string }>(
  entries: ReadonlyArray<E>,
  name: string,
  change: { readonly [V in keyof Omit<E, "name">]?: E[V] | null }
): ReadonlyArray<E | { readonly name: string }> => {
  const others = entries.filter((entry) => entry.name !== name)
  const said = Object.entries<unknown>({ ...entries.find((entry) => entry.name === name), ...change }).filter(
    ([, value]) => value !== null && value !== false && value !== undefined
  )
  const entry = { ...Object.fromEntries(said), name }
  return Object.keys(entry).length > 1 ? [...others, entry] : others
}

/** The status of a row `k` of `api_keys`. */
export const keyStatus =
  "CASE WHEN k.status = 'active' AND k.expires_at <= now() THEN 'expired' ELSE k.status END"

/** The columns of `KeyInfo`, of a row `k` of `api_keys` and a row `t` of `tenants`. */
export const keyColumns = (sql: SqlClient.SqlClient) => sql`
  k.prefix, k.name, t.name AS tenant, k.scopes, k.created_at AS created, k.expires_at AS expires,
  ${selected(sql, "k", KeyAttributes.fields)},
  ${sql.literal(keyStatus)} AS status`

export const readTenant = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, tenant: string) {
  const row = yield* tenantRows.first(
    sql`SELECT ${tenantColumns(sql)} FROM tenants t WHERE t.name = ${tenant}`
  )
  return row ?? (yield* new UnknownTenant({ tenant }))
})

/** Fails when there is no such tenant. */
export const requireTenant = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  tenant: string,
  lock: "" | "FOR NO KEY UPDATE" | "FOR UPDATE" = ""
) {
  const found = yield* sql`SELECT 1 FROM tenants WHERE name = ${tenant} ${sql.literal(lock)}`
  if (found.length === 0) return yield* new UnknownTenant({ tenant })
})

/** The same, and until the end of the transaction nobody else makes keys in the tenant or changes its models. */
export const lockTenant = (sql: SqlClient.SqlClient, tenant: string) =>
  requireTenant(sql, tenant, "FOR NO KEY UPDATE")

/**
 * Locks a key and the first key of its account until the end of the transaction, so that no key joins the account meanwhile.
 * Returns whether the key exists.
 */
export const lockAccount = (sql: SqlClient.SqlClient, prefix: string) =>
  Effect.map(
    sql`
      SELECT 1 FROM api_keys
      WHERE prefix = ${prefix} OR id = (SELECT k.budget_account FROM api_keys k WHERE k.prefix = ${prefix})
      ORDER BY created_at, id FOR UPDATE`,
    (rows) => rows.length > 0
  )

/**
 * Runs a transaction that reads many rows: the settings of a request's short statements would plan it badly and end it after
 * two seconds. `seconds` bounds each statement. All statements of a `snapshot` see the same rows; it writes nothing, unless it says so.
 */
export const largeRead =
  (sql: SqlClient.SqlClient) =>
  <A, E, R>(
    seconds: number,
    read: Effect.Effect<A, E, R>,
    options?: { readonly snapshot: boolean; readonly writes?: boolean }
  ) =>
    sql.withTransaction(
      Effect.gen(function* () {
        if (options?.snapshot === true)
          yield* sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ ${sql.literal(options.writes === true ? "READ WRITE" : "READ ONLY")}`
        yield* sql`SET LOCAL statement_timeout = ${sql.literal(String(seconds * 1000))}`
        yield* sql`SET LOCAL enable_seqscan = on`
        yield* sql`SET LOCAL enable_hashjoin = on`
        return yield* read
      })
    )
