/** Turns records into rows of the tables, with texts cleaned and cut. No text of a client can make an insert fail. */
import { clientText } from "../domain/clientText.ts"
import { maxEndUser } from "../domain/EndUser.ts"
import type { Facts } from "../domain/Evidence.ts"
import { maxRefusal } from "../domain/refusal.ts"
import { outcomes } from "../domain/Outcome.ts"
import type { Usage } from "../domain/Usage.ts"
import type { AuditRecord, Arrival } from "../domain/AuditRecord.ts"

const cleanOrNull = (text: string | undefined, maxLength: number): string | null =>
  text === undefined ? null : clientText(text, maxLength)

/** A whole number that both JavaScript and Postgres store exactly. */
const count = (tokens: number): number =>
  Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.trunc(tokens) || 0))

const isoOf = (epochMs: number): string => new Date(epochMs).toISOString()

const arrivalColumns = (arrival: Arrival) => ({
  request_id: arrival.requestId,
  arrived_at: isoOf(arrival.arrivedAt),
  method: clientText(arrival.method, 16),
  endpoint: clientText(arrival.endpoint, 256),
  client_ip: clientText(arrival.clientIp, 64),
  client_request_id: cleanOrNull(arrival.clientRequestId, 64)
})

/** The optional facts that a client and the operator give a request. */
const claimColumns = ({ alias, endUser }: { readonly alias?: string; readonly endUser?: string }) => ({
  alias: cleanOrNull(alias, 128),
  end_user: cleanOrNull(endUser, maxEndUser)
})

/** Stored before the backend is called, because the request may cost tokens from then on. */
export const intentRow = (facts: Facts<"Queue">) => ({
  ...arrivalColumns(facts.arrival),
  tenant_id: facts.caller.tenantId,
  key_id: facts.caller.keyId,
  key_prefix: facts.caller.keyPrefix,
  model: clientText(facts.model.name, 128),
  ...claimColumns(facts),
  user_account: facts.reservation.claims.user?.id ?? null,
  streamed: facts.request.stream,
  admitted_at: isoOf(facts.reservation.admittedAt),
  held: count(facts.reservation.held),
  tokens_in: count(facts.request.promptEstimate)
})

export const auditRow = (record: AuditRecord) => ({
  ...arrivalColumns(record.arrival),
  tenant_id: record.caller?.tenantId ?? null,
  key_id: record.caller?.keyId ?? null,
  key_prefix: record.caller?.keyPrefix ?? null,
  model: cleanOrNull(record.model, 128),
  ...claimColumns(record),
  user_account: record.userAccount ?? null,
  truncated: record.truncated ?? null,
  streamed: record.streamed,
  tokens_in: count(record.usage.tokensIn),
  tokens_cached: record.usage.tokensCached === undefined ? null : count(record.usage.tokensCached),
  tokens_out: count(record.usage.tokensOut),
  usage_source: record.usage.source,
  status: record.status,
  error_type: record.errorType ?? null,
  detail: cleanOrNull(record.detail, maxRefusal),
  latency_ms: Math.min(2_147_483_647, count(record.latencyMs)),
  queued_ms: record.queuedMs === undefined ? null : Math.min(2_147_483_647, count(record.queuedMs)),
  load_ms: record.loadMs === undefined ? null : Math.min(2_147_483_647, count(record.loadMs)) || null,
  /** number of requests that the row stands for (`Tally.ts`) */
  repeats: 1,
  admitted_at: null
})

/** The row of an admitted request, with the time of its intent. */
export const completionRow = (record: AuditRecord, admittedAt = isoOf(record.arrival.arrivedAt)) => ({
  ...auditRow(record),
  admitted_at: admittedAt
})

/**
 * The row was late, so the client got a 503. The row records that. The tokens are charged all the same. Returns whether
 * the row changed: a refusal keeps its status.
 */
export const recordAs503 = (row: AuditRow): boolean => {
  if (row.status >= 400) return false
  row.status = outcomes.unavailable.status
  row.error_type = outcomes.unavailable.type
  row.detail = "gate: Audit"
  return true
}

/** What an open request has used, and the most it has held. */
export interface Progress extends Usage {
  readonly held: number
}

export const progressRow = (requestId: string, usage: Progress) => ({
  request_id: requestId,
  held: count(usage.held),
  tokens_in: count(usage.tokensIn),
  tokens_out: count(usage.tokensOut)
})

export type CompletionRow = ReturnType<typeof completionRow>
export type AuditRow = ReturnType<typeof auditRow> | CompletionRow
export type IntentRow = ReturnType<typeof intentRow>
export type ProgressRow = ReturnType<typeof progressRow>
