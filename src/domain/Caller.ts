/** The authenticated key with its limits and grants, as the key store read them from the database. */
import type { Budgets, EffectiveLimits } from "./Limits.ts"

export const scopes = ["chat", "embeddings"] as const
export type Scope = (typeof scopes)[number]

/** A `batch` request starts when no interactive one waits, and after ten minutes at the latest. */
export const priorities = ["interactive", "batch"] as const
export type Priority = (typeof priorities)[number]

/** Which discovered models a tenant may use: all, or the named ones. */
export type ModelGrant = "all" | ReadonlySet<string>

/** Names of a tenant for models: alias, without `:latest`, to the name of a model. */
export type ModelAliases = ReadonlyMap<string, string>

export interface Caller {
  readonly tenantId: string
  readonly tenantName: string
  readonly keyId: string
  /** whose limits and budgets it uses: its own id, or that of the first of the keys that it replaces (`rotate-key`) */
  readonly accountId: string
  /** 12 characters, public */
  readonly keyPrefix: string
  readonly scopes: ReadonlySet<Scope>
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
  /** what all keys of its tenant share */
  readonly tenantBudgets: Budgets
  readonly models: ModelGrant
  /** absent: none */
  readonly aliases?: ModelAliases
  /** the tenant's share of the backend while requests wait for it: twice the weight is twice the share */
  readonly weight: number
  readonly priority: Priority
  /** lower-case name of the header with the end user of a request; absent: none */
  readonly endUserHeader?: string
  /** days to keep prompts and answers; absent when the key has not opted in */
  readonly promptLogDays?: number
}
