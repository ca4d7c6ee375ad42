/** Writes one log line for each audited request: the facts of its row, without addresses. */
import { Context, Effect } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { redactKeys } from "../domain/Key.ts"

/** Whether each request is logged. In embedded mode it is not. */
export const RequestLines = Context.Reference<boolean>("tollgate/observability/RequestLines", {
  defaultValue: () => false
})

export const requestLine = (record: AuditRecord): Effect.Effect<void> =>
  Effect.logInfo("request", {
    request_id: record.arrival.requestId,
    key: record.caller?.keyPrefix,
    tenant: record.caller?.tenantName,
    method: record.arrival.method,
    // A blocked path is text of the client, of any length. Redacting comes before cutting, so that no half key is left.
    endpoint: redactKeys(record.arrival.endpoint).slice(0, 128),
    model: record.model === undefined ? undefined : redactKeys(record.model).slice(0, 128),
    status: record.status,
    error: record.errorType,
    latency_ms: record.latencyMs,
    tokens_in: record.usage.tokensIn,
    tokens_out: record.usage.tokensOut
  })
