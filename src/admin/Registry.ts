/**
 * Administration of tenants, keys, limits, budgets and models, and the totals of what they used.
 *
 * Every change is one transaction. It is in force on every gateway within about `KEY_FRESHNESS_MS`, because the gates poll
 * the state and do not depend on notifications. Only `createKey` and `rotateKey` return a key's secret, once.
 */
import { Context, type Effect } from "effect"
import type { Priority } from "../domain/Caller.ts"
import type { BudgetUse, Period } from "../domain/Limits.ts"
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
  /** other names for models, without `:latest` */
  readonly modelAliases: ReadonlyArray<{ readonly alias: string; readonly model: string }>
  /** share of the backend while requests wait for it */
  readonly weight: number
  readonly status: "active" | "disabled"
  readonly created: Date
}

export interface KeyInfo extends LimitValues<number | null> {
  readonly prefix: string
  readonly name: string
  readonly tenant: string
  readonly scopes: ReadonlyArray<string>
  /** `expired`: an active key past its end */
  readonly status: "active" | "disabled" | "revoked" | "expired"
  readonly created: Date
  readonly expires: Date | null
  readonly priority: Priority
  /** the header with the end user of a request; null: none */
  readonly endUserHeader: string | null
  readonly promptLog: boolean
  /** null: the setting's default */
  readonly promptLogDays: number | null
}

/** A key with all that decides whether it works now. */
export interface KeyOverview extends KeyInfo {
  /** the limits in force: its own, else the tenant's */
  readonly effective: LimitValues<number>
  /** whether the tenant is disabled, or may use no model: then no request of the key succeeds */
  readonly tenantDisabled: boolean
  readonly tenantWithoutModels: boolean
  /** the budgets that bind it */
  readonly budgets: ReadonlyArray<BudgetState>
  /** when its latest request in the audit log arrived */
  readonly lastUsed: Date | null
}

export interface UsageTotals {
  readonly requests: number
  readonly tokensIn: number
  readonly tokensOut: number
}

/** The budget of a period, null when there is none, and the tokens that the ledger counts in it. */
export interface BudgetState {
  readonly period: Period
  readonly budget: number | null
  readonly spent: number
  /** how far it is spent; null when there is none */
  readonly state: BudgetUse | null
}

/** One logged prompt and its answer, each cut at 64 KiB. `truncated`: whether one of them was cut. */
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
  /** the header with the end user of a request; default: none */
  readonly endUserHeader?: string
}

/** An absent field does not change; null removes the key's own limit. */
export interface KeyLimitChange extends Partial<LimitValues<number | null>> {
  readonly priority?: Priority
}

export interface TenantLimitChange extends Partial<LimitValues<number>> {
  readonly weight?: number
}

/** What is absent does not change. */
export interface ModelsChange {
  /** the new allowlist */
  readonly models?: ReadonlyArray<string>
  readonly allowAll?: boolean
  /** aliases to add, or to give another model */
  readonly aliases?: { readonly [alias: string]: string }
  readonly removeAliases?: ReadonlyArray<string>
}

/** An absent period does not change; null removes its budget. */
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
    setModels(tenant: string, change: ModelsChange): Answer<TenantInfo, UnknownTenant>
    /** From the ledger; day and month are the current ones in UTC. */
    usage(tenant: string, period: Period): Answer<UsageTotals, UnknownTenant>

    /** `secret` is the full key. It is returned only here and is not stored. */
    createKey(key: NewKey): Answer<{ readonly secret: string; readonly key: KeyInfo }, UnknownTenant>
    /**
     * Makes a new key with the name, scopes, limits, budgets, prompt log, header for the end user and lifetime of the old one.
     * The lifetime starts now. Both keys have one account: what one uses of limits and budgets, the other cannot use. With `graceMs` the old key ends after that time; without it, the old key does not change.
     */
    rotateKey(
      prefix: string,
      graceMs: number | undefined
    ): Answer<{ readonly secret: string; readonly key: KeyInfo; readonly replaced: KeyInfo }, UnknownKey>
    /** The keys of a tenant, or of all tenants. */
    listKeys(tenant?: string): Answer<ReadonlyArray<KeyOverview>, UnknownTenant>
    showKey(prefix: string): Answer<KeyOverview, UnknownKey>
    /** Idempotent. `already`: whether it was revoked before. */
    revokeKey(prefix: string): Answer<{ readonly already: boolean }, UnknownKey>
    setKeyEnabled(prefix: string, enabled: boolean): Answer<KeyInfo, UnknownKey | RevokedKey>
    setKeyLimits(prefix: string, limits: KeyLimitChange): Answer<KeyInfo, UnknownKey>
    /** Sets the header with the end user of a request; null: none. */
    setEndUserHeader(prefix: string, header: string | null): Answer<KeyInfo, UnknownKey>
    setPromptLog(
      prefix: string,
      change: { readonly on: boolean; readonly retentionDays?: number }
    ): Answer<KeyInfo, UnknownKey>
    /** The newest `limit` of the key's logged prompts, newest first; `sinceMs` looks back from now. */
    showPromptLog(
      prefix: string,
      which: { readonly limit: number; readonly sinceMs?: number }
    ): Answer<ReadonlyArray<LoggedPrompt>, UnknownKey>
    /** Deletes all logged prompts of the key, in small batches, and returns their number. */
    erasePromptLog(prefix: string): Answer<number, UnknownKey>
    /** Of the key, and of all keys that share its account. */
    setBudgets(prefix: string, change: BudgetChange): Answer<ReadonlyArray<BudgetState>, UnknownKey>
    showBudgets(prefix: string): Answer<ReadonlyArray<BudgetState>, UnknownKey>
    /** The budgets that all keys of a tenant share, beside their own. */
    setTenantBudgets(tenant: string, change: BudgetChange): Answer<ReadonlyArray<BudgetState>, UnknownTenant>
    showTenantBudgets(tenant: string): Answer<ReadonlyArray<BudgetState>, UnknownTenant>

    /** Runs changes in one transaction: all of them are in force, or none is. */
    atomically<A, E>(changes: Effect.Effect<A, E>): Effect.Effect<A, E | RegistryDown>
  }
>()("tollgate/admin/Registry") {}
