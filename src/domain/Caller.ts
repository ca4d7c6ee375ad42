/** Who is asking, with everything that was decided about them, as the key store confirmed it. */
import type { Budgets, EffectiveLimits } from "./Limits.ts"

export const scopes = ["chat", "embeddings"] as const
export type Scope = (typeof scopes)[number]

/** `batch` requests are let to the backend when no interactive one waits for it, and at least one of them in ten minutes. */
export const priorities = ["interactive", "batch"] as const
export type Priority = (typeof priorities)[number]

/** Which discovered models a tenant may use: all of them, or those named. */
export type ModelGrant = "all" | ReadonlySet<string>

export interface Caller {
  readonly tenantId: string
  readonly tenantName: string
  readonly keyId: string
  /** 12 characters, public */
  readonly keyPrefix: string
  readonly scopes: ReadonlySet<Scope>
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
  readonly models: ModelGrant
  /** the tenant's share of the backend when requests wait for it: twice the weight is twice the share */
  readonly weight: number
  readonly priority: Priority
  /** days to keep prompts and answers; absent when the key has not opted in */
  readonly promptLogDays?: number
}
