/** The rows that the queries of the registry return. */
import { Schema } from "effect"
import { priorities } from "../domain/Caller.ts"
import type { BudgetState, KeyInfo, KeyOverview, LoggedPrompt, TenantInfo } from "./Registry.ts"

const TenantRow = Schema.Struct({
  name: Schema.String,
  rpm: Schema.Int,
  tpm: Schema.Int,
  concurrent: Schema.Int,
  allow_all_models: Schema.Boolean,
  allowed_models: Schema.Array(Schema.String),
  model_aliases: Schema.Record(Schema.String, Schema.String),
  weight: Schema.Int,
  disabled: Schema.Boolean,
  created_at: Schema.Date
})

const KeyRow = Schema.Struct({
  prefix: Schema.String,
  name: Schema.String,
  tenant: Schema.String,
  scopes: Schema.Array(Schema.String),
  status: Schema.Literals(["active", "disabled", "revoked", "expired"]),
  created_at: Schema.Date,
  expires_at: Schema.NullOr(Schema.Date),
  rpm: Schema.NullOr(Schema.Int),
  tpm: Schema.NullOr(Schema.Int),
  concurrent: Schema.NullOr(Schema.Int),
  priority: Schema.Literals(priorities),
  end_user_header: Schema.NullOr(Schema.String),
  prompt_log: Schema.Boolean,
  prompt_log_days: Schema.NullOr(Schema.Int)
})

const OverviewRow = Schema.Struct({
  ...KeyRow.fields,
  effective_rpm: Schema.Int,
  effective_tpm: Schema.Int,
  effective_concurrent: Schema.Int,
  tenant_disabled: Schema.Boolean,
  tenant_without_models: Schema.Boolean,
  last_used: Schema.NullOr(Schema.Date)
})

const UsageRow = Schema.Struct({
  requests: Schema.Finite,
  tokens_in: Schema.Finite,
  tokens_out: Schema.Finite
})

const BudgetRow = Schema.Struct({
  budget_daily: Schema.NullOr(Schema.Finite),
  budget_monthly: Schema.NullOr(Schema.Finite),
  budget_total: Schema.NullOr(Schema.Finite),
  day: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite
})

const PromptRow = Schema.Struct({
  request_id: Schema.String,
  created_at: Schema.Date,
  expires_at: Schema.Date,
  endpoint: Schema.String,
  prompt: Schema.String,
  answer: Schema.String,
  truncated: Schema.Boolean
})

export const tenantOf = (row: typeof TenantRow.Type): TenantInfo => ({
  name: row.name,
  rpm: row.rpm,
  tpm: row.tpm,
  concurrent: row.concurrent,
  allowAllModels: row.allow_all_models,
  allowedModels: row.allowed_models,
  modelAliases: Object.entries(row.model_aliases).map(([alias, model]) => ({ alias, model })),
  weight: row.weight,
  status: row.disabled ? "disabled" : "active",
  created: row.created_at
})

export const keyOf = (row: typeof KeyRow.Type): KeyInfo => ({
  prefix: row.prefix,
  name: row.name,
  tenant: row.tenant,
  scopes: row.scopes,
  status: row.status,
  created: row.created_at,
  expires: row.expires_at,
  rpm: row.rpm,
  tpm: row.tpm,
  concurrent: row.concurrent,
  priority: row.priority,
  endUserHeader: row.end_user_header,
  promptLog: row.prompt_log,
  promptLogDays: row.prompt_log_days
})

export const overviewOf = (
  row: typeof OverviewRow.Type,
  budgets: ReadonlyArray<BudgetState>
): KeyOverview => ({
  ...keyOf(row),
  effective: { rpm: row.effective_rpm, tpm: row.effective_tpm, concurrent: row.effective_concurrent },
  tenantDisabled: row.tenant_disabled,
  tenantWithoutModels: row.tenant_without_models,
  budgets,
  lastUsed: row.last_used
})

export const promptOf = (row: typeof PromptRow.Type): LoggedPrompt => ({
  requestId: row.request_id,
  created: row.created_at,
  expires: row.expires_at,
  endpoint: row.endpoint,
  prompt: row.prompt,
  answer: row.answer,
  truncated: row.truncated
})

const rowsOf = <A>(row: Schema.Decoder<A>) => Schema.decodeUnknownEffect(Schema.Array(row))
export const tenantRows = rowsOf(TenantRow)
export const keyRows = rowsOf(KeyRow)
export const overviewRows = rowsOf(OverviewRow)
export const usageRows = rowsOf(UsageRow)
export const budgetRows = rowsOf(BudgetRow)
export const promptRows = rowsOf(PromptRow)
