/** What a request uses of the settings of its key and tenant. */
import { type CallerSettings, grantOf } from "../../domain/Caller.ts"
import type { Budgets } from "../../domain/Limits.ts"
import type { KeySettings, TenantSettings } from "../../domain/settings.ts"

const budgetsOf = (day: number | null, month: number | null, total: number | null): Budgets => ({
  ...(day === null ? {} : { day }),
  ...(month === null ? {} : { month }),
  ...(total === null ? {} : { total })
})

export const callerSettings = (
  key: KeySettings,
  tenant: TenantSettings,
  promptLogDefaultDays: number
): CallerSettings => {
  const {
    budgetDaily,
    budgetMonthly,
    budgetTotal,
    concurrent,
    endUserHeader,
    ownModels,
    promptLog,
    promptLogDays,
    rpm,
    tpm,
    ...ofKey
  } = key
  const {
    allowAllModels,
    allowedModels,
    budgetDaily: tenantDaily,
    budgetMonthly: tenantMonthly,
    budgetTotal: tenantTotal,
    concurrent: tenantConcurrent,
    modelAliases,
    rpm: tenantRpm,
    tpm: tenantTpm,
    ...ofTenant
  } = tenant
  return {
    ...ofKey,
    ...ofTenant,
    limits: {
      rpm: rpm ?? tenantRpm,
      tpm: tpm ?? tenantTpm,
      concurrent: concurrent ?? tenantConcurrent
    },
    budgets: budgetsOf(budgetDaily, budgetMonthly, budgetTotal),
    tenantBudgets: budgetsOf(tenantDaily, tenantMonthly, tenantTotal),
    models: grantOf(allowAllModels ? "all" : new Set(allowedModels), ownModels),
    ...(modelAliases.length === 0
      ? {}
      : { aliases: new Map(modelAliases.map(({ alias, model }) => [alias, model])) }),
    ...(endUserHeader === null ? {} : { endUserHeader: endUserHeader.toLowerCase() }),
    ...(promptLog ? { promptLogDays: promptLogDays ?? promptLogDefaultDays } : {})
  }
}
