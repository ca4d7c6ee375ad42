/**
 * The rows of the audit: each column with its types, and its value from a record. Statements, recovery and `show-request` take the
 * columns from here. Texts are cleaned and cut, so no text of a client can make an insert fail.
 */
import { Schema, Struct, type Types } from "effect"
import type { Calendar } from "../domain/Calendar.ts"
import { date, flag, integer, text, time, tokens, uuid } from "../infra/columns.ts"
import { clientText } from "../domain/clientText.ts"
import { maxEndUser } from "../domain/EndUser.ts"
import type { Facts } from "../domain/Evidence.ts"
import { maxRefusal } from "../domain/Errors.ts"
import { outcomes } from "../domain/Outcome.ts"
import type { Usage } from "../domain/Usage.ts"
import type { AuditRecord, Arrival } from "../domain/AuditRecord.ts"

/**
 * The day of the ledger of a row `row` of the log, its corrections or the intents. Version 1.0.0 counts UTC days and writes none.
 * `at`: what a row without a day has of time.
 */
export const ledgerDay = (row: string, at = `${row}.admitted_at`): string =>
  `coalesce(${row}.day, (${at} AT TIME ZONE 'UTC')::date)`

const cleanOrNull = (text: string | undefined, maxLength: number): string | null =>
  text === undefined ? null : clientText(text, maxLength)

/** A whole number that both JavaScript and Postgres store exactly. */
const count = (amount: number): number =>
  Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.trunc(amount) || 0))

const milliseconds = (ms: number): number => Math.min(2_147_483_647, count(ms))

const isoOf = (epochMs: number): string => new Date(epochMs).toISOString()

const source = Schema.Literals(["backend", "counted", "estimated"]).annotate({ postgres: "text" })

/** What is known of any request. */
const request = {
  request_id: uuid,
  arrived_at: time,
  /** of its admission, else of its arrival: of an admitted request the day of the ledger */
  day: Schema.NullOr(date),
  method: text,
  endpoint: text,
  client_ip: text,
  client_request_id: Schema.NullOr(text),
  alias: Schema.NullOr(text),
  end_user: Schema.NullOr(text),
  user_account: Schema.NullOr(uuid),
  streamed: flag,
  tokens_in: tokens
}

/** What is known of an admitted request. */
const admitted = { tenant_id: uuid, key_id: uuid, key_prefix: text, model: text, admitted_at: time }

/** Columns of `intents`, which are written before the backend is called: the request may cost tokens from then on. */
export const IntentRow = Schema.Struct({ ...request, ...admitted, held: tokens })
export type IntentRow = typeof IntentRow.Type

/** Columns of `audit_log`. */
export const AuditRow = Schema.Struct({
  ...request,
  ...Struct.map(admitted, Schema.NullOr),
  tokens_cached: Schema.NullOr(tokens),
  tokens_out: tokens,
  usage_source: Schema.NullOr(source),
  status: integer,
  error_type: Schema.NullOr(text),
  detail: Schema.NullOr(text),
  latency_ms: integer,
  queued_ms: Schema.NullOr(integer),
  load_ms: Schema.NullOr(integer),
  truncated: Schema.NullOr(flag),
  /** number of requests that the row stands for (`Tally.ts`) */
  repeats: integer
})
export type AuditRow = Types.Mutable<typeof AuditRow.Type>

/** What an open request has used so far. */
export const ProgressRow = Schema.Struct({
  request_id: uuid,
  held: tokens,
  tokens_in: tokens,
  tokens_out: tokens
})
export type ProgressRow = typeof ProgressRow.Type

interface Asked {
  readonly arrival: Arrival
  readonly alias?: string
  readonly endUser?: string
}

const requestColumns = ({ alias, arrival, endUser }: Asked) => ({
  request_id: arrival.requestId,
  arrived_at: isoOf(arrival.arrivedAt),
  method: clientText(arrival.method, 16),
  endpoint: clientText(arrival.endpoint, 256),
  client_ip: clientText(arrival.clientIp, 64),
  client_request_id: cleanOrNull(arrival.clientRequestId, 64),
  alias: cleanOrNull(alias, 128),
  end_user: cleanOrNull(endUser, maxEndUser)
})

export const intentRow = (facts: Facts<"Queue">, { dayAt }: Calendar): IntentRow => ({
  ...requestColumns(facts),
  day: dayAt(facts.reservation.admittedAt).date,
  tenant_id: facts.caller.tenantId,
  key_id: facts.caller.keyId,
  key_prefix: facts.caller.keyPrefix,
  model: clientText(facts.model.name, 128),
  user_account: facts.reservation.claims.user?.id ?? null,
  streamed: facts.request.stream,
  admitted_at: isoOf(facts.reservation.admittedAt),
  held: count(facts.reservation.held),
  tokens_in: count(facts.request.promptEstimate)
})

/** `admittedAt`: of a request that was admitted */
export const auditRow = (
  record: AuditRecord,
  { dayAt }: Calendar,
  admittedAt: string | null = null
): AuditRow => ({
  ...requestColumns(record),
  tenant_id: record.caller?.tenantId ?? null,
  key_id: record.caller?.keyId ?? null,
  key_prefix: record.caller?.keyPrefix ?? null,
  model: cleanOrNull(record.model, 128),
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
  latency_ms: milliseconds(record.latencyMs),
  queued_ms: record.queuedMs === undefined ? null : milliseconds(record.queuedMs),
  load_ms: milliseconds(record.loadMs ?? 0) || null,
  repeats: 1,
  admitted_at: admittedAt,
  day: dayAt(admittedAt === null ? record.arrival.arrivedAt : Date.parse(admittedAt)).date
})

/** The row of an admitted request, with the time of its intent. */
export const completionRow = (
  record: AuditRecord,
  calendar: Calendar,
  admittedAt = isoOf(record.arrival.arrivedAt)
): AuditRow => auditRow(record, calendar, admittedAt)

/**
 * The row was late. The client of an admitted request then gets a 503, whatever its end was, and so does that of a list; the row
 * records it, and the tokens are charged all the same. A refusal keeps its status, and a client that left is told nothing. Returns
 * whether the row changed.
 */
export const recordAs503 = (row: AuditRow): boolean => {
  const keeps = row.admitted_at === null ? row.status >= 400 : row.status === outcomes.clientLeft.status
  if (keeps || row.error_type === outcomes.unavailable.type) return false
  row.status = outcomes.unavailable.status
  row.error_type = outcomes.unavailable.type
  row.detail = "gate: Audit"
  return true
}

/** What an open request has used, and the most it has held. */
export interface Progress extends Usage {
  readonly held: number
}

export const progressRow = (requestId: string, usage: Progress): ProgressRow => ({
  request_id: requestId,
  held: count(usage.held),
  tokens_in: count(usage.tokensIn),
  tokens_out: count(usage.tokensOut)
})
