/**
 * Administration of tenants, keys, limits, budgets and models, and the totals of what they used.
 *
 * Every change is one transaction. It is in force on every gateway within about `KEY_FRESHNESS_MS`, because the gates poll
 * the state and do not depend on notifications. Only `createKey` and `rotateKey` return a key's secret, once.
 */
import { Context, type Effect, Schema, Struct } from "effect"
import { type BudgetUse, type Period } from "../domain/Limits.ts"
import { type KeyChange, KeySettings, type TenantChange, TenantSettings } from "../domain/settings.ts"
import type { Listed, UnreadableRow } from "../infra/rows.ts"
import type {
  DuplicateKey,
  DuplicateTenant,
  InvalidValue,
  RegistryDown,
  RevokedKey,
  TenantInUse,
  UnknownKey,
  UnknownTenant
} from "./Errors.ts"

/** The settings with the budget of each period. */
export const budgetOf = {
  day: "budgetDaily",
  month: "budgetMonthly",
  total: "budgetTotal"
} as const satisfies Record<Period, keyof KeySettings & keyof TenantSettings>

export const budgetFields = [budgetOf.day, budgetOf.month, budgetOf.total]

export const TenantInfo = Schema.Struct({
  name: Schema.String,
  ...TenantSettings.fields,
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
  status: Schema.Literals(["active", "disabled", "revoked", "expired"]),
  created: Schema.Date,
  expires: Schema.NullOr(Schema.Date),
  ...KeySettings.fields
})
export type KeyInfo = typeof KeyInfo.Type

/** A key with all that decides whether it works now. */
export const KeyOverview = Schema.Struct({
  ...KeyInfo.fields,
  /** the limits in force: its own, else the tenant's */
  effective: Schema.Struct(Struct.pick(TenantSettings.fields, ["rpm", "tpm", "concurrent"])),
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
  readonly expiresAt?: Date | undefined
  /** whether the tenant may have a live key of that name already */
  readonly allowDuplicate?: boolean
}

/** Keys that differ in their names only. */
export interface NewKeys extends Omit<NewKey, "name" | "allowDuplicate"> {
  readonly names: ReadonlyArray<string>
}

export interface MadeKey {
  readonly name: string
  readonly prefix: string
  /** the full key */
  readonly secret: string
}

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
}

/** A model that stays loaded. */
export const Pin = Schema.Struct({
  model: Schema.String,
  /** from the first hour of the day until the second, in UTC, as `08-18`; null: always */
  hours: Schema.NullOr(Schema.String)
})
export type Pin = typeof Pin.Type

export interface PinsChange {
  /** pinned from now on, with these hours */
  readonly pin?: ReadonlyArray<Pin> | undefined
  /** no longer pinned */
  readonly unpin?: ReadonlyArray<string> | undefined
  /** whether those that `pin` does not name are no longer pinned */
  readonly only?: boolean | undefined
}

/** An absent period does not change; null removes its budget. */
export type BudgetChange = { readonly [P in Period]?: number | null }

type Answer<A, E = never> = Effect.Effect<A, E | InvalidValue | RegistryDown | UnreadableRow>

export class Registry extends Context.Service<
  Registry,
  {
    createTenant(tenant: NewTenant): Answer<TenantInfo, DuplicateTenant>
    readonly listTenants: Answer<Listed<TenantInfo>>
    showTenant(tenant: string): Answer<TenantInfo, UnknownTenant>
    changeTenant(tenant: string, change: TenantChange): Answer<TenantInfo, UnknownTenant>
    setTenantEnabled(tenant: string, enabled: boolean): Answer<TenantInfo, UnknownTenant>
    renameTenant(tenant: string, name: string): Answer<TenantInfo, UnknownTenant | DuplicateTenant>
    /** Only a tenant that never had a key and never used anything: reports need the names of the others. */
    deleteTenant(tenant: string): Answer<void, UnknownTenant | TenantInUse>
    setModels(tenant: string, change: ModelsChange): Answer<TenantInfo, UnknownTenant>
    /** From the ledger; day and month are the current ones in UTC. */
    usage(tenant: string, period: Period): Answer<UsageTotals, UnknownTenant>

    /** `secret` is the full key. It is returned only here and is not stored. */
    createKey(
      key: NewKey
    ): Answer<{ readonly secret: string; readonly key: KeyInfo }, UnknownTenant | DuplicateKey>
    /**
     * Makes a key for each name that has no live key in the tenant, in one transaction. `keep` stores the keys before the
     * commit, so that no key is in force whose text is lost; when it fails, no key is made. One `keep` runs at a time.
     * `livingOf` says which prefixes belong to live keys.
     */
    createKeys<E>(
      keys: NewKeys,
      keep: (
        made: ReadonlyArray<MadeKey>,
        livingOf: (
          prefixes: ReadonlyArray<string>
        ) => Effect.Effect<ReadonlySet<string>, RegistryDown | UnreadableRow>
      ) => Effect.Effect<void, E>
    ): Answer<
      {
        readonly made: ReadonlyArray<MadeKey>
        /** those that have a live key, with its prefix */
        readonly skipped: ReadonlyArray<{ readonly name: string; readonly prefix: string }>
      },
      UnknownTenant | E
    >
    /**
     * Makes a new key with the name, scopes, settings and lifetime of the old one. The lifetime starts now. Both keys have one
     * account: what one uses of limits and budgets, the other cannot use. With `graceMs` the old key ends after that time;
     * without it, the old key does not change.
     */
    rotateKey(
      prefix: string,
      graceMs: number | undefined
    ): Answer<{ readonly secret: string; readonly key: KeyInfo; readonly replaced: KeyInfo }, UnknownKey>
    /** The keys of a tenant, or of all tenants. */
    listKeys(tenant?: string): Answer<Listed<KeyOverview>, UnknownTenant>
    showKey(prefix: string): Answer<KeyOverview, UnknownKey>
    /** Budgets change for all keys that share the account of the key. */
    changeKey(prefix: string, change: KeyChange): Answer<KeyInfo, UnknownKey>
    /**
     * Gives the key and those that share its account to another tenant. What they used stays with the old tenant; their
     * budgets go on with what was spent. Returns all keys that moved.
     */
    moveKey(
      prefix: string,
      tenant: string
    ): Answer<ReadonlyArray<KeyInfo>, UnknownKey | UnknownTenant | DuplicateKey>
    /** Idempotent. `already`: whether it was revoked before. */
    revokeKey(prefix: string): Answer<{ readonly already: boolean }, UnknownKey>
    setKeyEnabled(prefix: string, enabled: boolean): Answer<KeyInfo, UnknownKey | RevokedKey>
    /** The newest `limit` of the key's logged prompts, newest first; `sinceMs` looks back from now. */
    showPromptLog(
      prefix: string,
      which: { readonly limit: number; readonly sinceMs?: number | undefined }
    ): Answer<Listed<LoggedPrompt>, UnknownKey>
    /** Deletes all logged prompts of the key, in small batches, and returns their number. */
    erasePromptLog(prefix: string): Answer<number, UnknownKey>
    setBudgets(prefix: string, change: BudgetChange): Answer<ReadonlyArray<BudgetState>, UnknownKey>
    /** Of the key, or of one of its end users by name. */
    showBudgets(prefix: string, user?: string): Answer<ReadonlyArray<BudgetState>, UnknownKey>
    /** The budgets that all keys of a tenant share, beside their own. */
    setTenantBudgets(tenant: string, change: BudgetChange): Answer<ReadonlyArray<BudgetState>, UnknownTenant>
    showTenantBudgets(tenant: string): Answer<ReadonlyArray<BudgetState>, UnknownTenant>

    /** The models that stay loaded, for all tenants. */
    readonly listPins: Answer<ReadonlyArray<Pin>>
    changePins(change: PinsChange): Answer<ReadonlyArray<Pin>>

    /** Runs changes in one transaction: all of them are in force, or none is. */
    atomically<A, E>(changes: Effect.Effect<A, E>): Effect.Effect<A, E | RegistryDown>
  }
>()("tollgate/admin/Registry") {}
