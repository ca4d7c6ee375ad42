/** Prints tenants, keys, limits and budgets as tables. */
import type { BudgetState, KeyInfo, LimitValues, TenantInfo } from "../src/admin/Registry.ts"
import { amount, minute, table } from "./terminal.ts"

const models = (tenant: TenantInfo): string =>
  tenant.allowAllModels ? "all" : tenant.allowedModels.join(", ") || "-"

const aliases = ({ modelAliases }: TenantInfo): string =>
  modelAliases.map(({ alias, model }) => `${alias}=${model}`).join(", ") || "-"

export const tenantTable = (tenants: ReadonlyArray<TenantInfo>): string =>
  table(
    ["NAME", "STATUS", "RPM", "TPM", "CONCURRENT", "MODELS", "ALIASES"],
    tenants.map((tenant) => [
      tenant.name,
      tenant.status,
      String(tenant.rpm),
      String(tenant.tpm),
      String(tenant.concurrent),
      models(tenant),
      aliases(tenant)
    ])
  )

export const keyTable = (keys: ReadonlyArray<KeyInfo>): string =>
  table(
    ["PREFIX", "STATUS", "NAME", "CREATED (UTC)", "EXPIRES (UTC)"],
    keys.map((key) => [key.prefix, key.status, key.name, minute(key.created), minute(key.expires)])
  )

const inherited = (value: number | null): string => (value === null ? "tenant's" : String(value))

export const limitTable = (limits: LimitValues<number | null>): string =>
  table(
    ["RPM", "TPM", "CONCURRENT"],
    [[inherited(limits.rpm), inherited(limits.tpm), inherited(limits.concurrent)]]
  )

export const budgetTable = (states: ReadonlyArray<BudgetState>): string =>
  table(
    ["PERIOD", "BUDGET", "SPENT", "LEFT"],
    states.map(({ budget, period, spent }) => [
      period,
      amount(budget),
      amount(spent),
      amount(budget === null ? null : Math.max(0, budget - spent))
    ])
  )
