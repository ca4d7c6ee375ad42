/** What a request uses of the settings of its key and tenant. */
import { type CallerSettings, grantOf } from "../../domain/Caller.ts"
import type { Budgets } from "../../domain/Limits.ts"
import { eachUserFields, type KeySettings, type TenantSettings } from "../../domain/settings.ts"

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
    eachUserConcurrent,
    eachUserDaily,
    eachUserMonthly,
    eachUserRpm,
    eachUserTotal,
    eachUserTpm,
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
  const limits = {
    rpm: rpm ?? tenantRpm,
    tpm: tpm ?? tenantTpm,
    concurrent: concurrent ?? tenantConcurrent
  }
  const eachUser = {
    limits: {
      rpm: eachUserRpm ?? limits.rpm,
      tpm: eachUserTpm ?? limits.tpm,
      concurrent: eachUserConcurrent ?? limits.concurrent
    },
    budgets: budgetsOf(eachUserDaily, eachUserMonthly, eachUserTotal)
  }
  return {
    ...ofKey,
    ...ofTenant,
    limits,
    ...(eachUserFields.every((field) => key[field] === null) ? {} : { eachUser }),
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
