/**
 * The operator's hands: tenants, keys, limits, budgets, models and what was used of them.
 *
 * Every change is one transaction and is in force at every gateway within about `KEY_FRESHNESS_MS`, because the
 * gates read state and not news. A key's secret leaves here once, from `createKey`.
 */
import { Context, type Effect } from "effect"
import type { Priority } from "../domain/Caller.ts"
import type { Period } from "../domain/Limits.ts"
import type {
  DuplicateTenant,
  InvalidValue,
  RegistryDown,
  RevokedKey,
  UnknownKey,
  UnknownTenant
} from "./Errors.ts"

/** Requests per minute, tokens per minute, requests at a time. */
export interface LimitValues<A> {
  readonly rpm: A
  readonly tpm: A
  readonly concurrent: A
}

export interface TenantInfo extends LimitValues<number> {
  readonly name: string
  readonly allowAllModels: boolean
  readonly allowedModels: ReadonlyArray<string>
  /** share of the backend when requests wait for it */
  readonly weight: number
  readonly status: "active" | "disabled"
  readonly created: Date
}

export interface KeyInfo extends LimitValues<number | null> {
  readonly prefix: string
  readonly name: string
  readonly tenant: string
  readonly scopes: ReadonlyArray<string>
  /** `expired` is an active key past its time */
  readonly status: "active" | "disabled" | "revoked" | "expired"
  readonly created: Date
  readonly expires: Date | null
  readonly priority: Priority
  readonly promptLog: boolean
  /** null: the setting's default */
  readonly promptLogDays: number | null
}

export interface UsageTotals {
  readonly requests: number
  readonly tokensIn: number
  readonly tokensOut: number
}

/** A period's budget, null when there is none, and the tokens the ledger has for it. */
export interface BudgetState {
  readonly period: Period
  readonly budget: number | null
  readonly spent: number
}

/** One logged prompt and its answer, each cut at 64 KiB; `truncated` tells whether one of them was. */
export interface LoggedPrompt {
  readonly requestId: string
  readonly created: Date
  readonly expires: Date
  readonly endpoint: string
  readonly prompt: string
  readonly answer: string
  readonly truncated: boolean
}

export interface NewTenant extends Partial<LimitValues<number>> {
  readonly name: string
  readonly allowAllModels?: boolean
}

export interface NewKey extends Partial<LimitValues<number>> {
  readonly tenant: string
  readonly name: string
  /** default: all */
  readonly scopes?: ReadonlyArray<string>
  /** lifetime from now, by the database's clock; not together with `expiresAt` */
  readonly expiresInMs?: number
  readonly expiresAt?: Date
  /** default `interactive` */
  readonly priority?: Priority
}

/** Absent means untouched; null takes the key's own limit away. */
export interface KeyLimitChange extends Partial<LimitValues<number | null>> {
  readonly priority?: Priority
}

export interface TenantLimitChange extends Partial<LimitValues<number>> {
  readonly weight?: number
}

/** Absent means untouched; null takes the budget or the key's own limit away. */
export type BudgetChange = { readonly [P in Period]?: number | null }

type Answer<A, E = never> = Effect.Effect<A, E | InvalidValue | RegistryDown>

export class Registry extends Context.Service<
  Registry,
  {
    createTenant(tenant: NewTenant): Answer<TenantInfo, DuplicateTenant>
    readonly listTenants: Answer<ReadonlyArray<TenantInfo>>
    showTenant(tenant: string): Answer<TenantInfo, UnknownTenant>
    setTenantLimits(tenant: string, limits: TenantLimitChange): Answer<TenantInfo, UnknownTenant>
    setTenantEnabled(tenant: string, enabled: boolean): Answer<TenantInfo, UnknownTenant>
    setModels(
      tenant: string,
      change: { readonly models?: ReadonlyArray<string>; readonly allowAll?: boolean }
    ): Answer<TenantInfo, UnknownTenant>
    /** From the ledger; day and month are the current ones in UTC. */
    usage(tenant: string, period: Period): Answer<UsageTotals, UnknownTenant>

    /** `secret` is the full key, and this is the only time anyone sees it. */
    createKey(key: NewKey): Answer<{ readonly secret: string; readonly key: KeyInfo }, UnknownTenant>
    /**
     * A new key with everything the old one had: name, scopes, limits, budgets (which start full), prompt log and,
     * counted from now, lifetime. With `graceMs` the old one ends after that time; without it, it stays as it is.
     */
    rotateKey(
      prefix: string,
      graceMs: number | undefined
    ): Answer<{ readonly secret: string; readonly key: KeyInfo; readonly replaced: KeyInfo }, UnknownKey>
    listKeys(tenant: string): Answer<ReadonlyArray<KeyInfo>, UnknownTenant>
    /** Idempotent: `already` tells that it was revoked before. */
    revokeKey(prefix: string): Answer<{ readonly already: boolean }, UnknownKey>
    setKeyEnabled(prefix: string, enabled: boolean): Answer<KeyInfo, UnknownKey | RevokedKey>
    setKeyLimits(prefix: string, limits: KeyLimitChange): Answer<KeyInfo, UnknownKey>
    setPromptLog(
      prefix: string,
      change: { readonly on: boolean; readonly retentionDays?: number }
    ): Answer<KeyInfo, UnknownKey>
    /** The newest `limit` of the key's logged prompts, newest first; `sinceMs` looks back from now. */
    showPromptLog(
      prefix: string,
      which: { readonly limit: number; readonly sinceMs?: number }
    ): Answer<ReadonlyArray<LoggedPrompt>, UnknownKey>
    /** Deletes all that is logged of the key, in small batches, and tells how much that was. */
    erasePromptLog(prefix: string): Answer<number, UnknownKey>
    setBudgets(prefix: string, change: BudgetChange): Answer<ReadonlyArray<BudgetState>, UnknownKey>
    showBudgets(prefix: string): Answer<ReadonlyArray<BudgetState>, UnknownKey>
  }
>()("tollgate/admin/Registry") {}
