/** One log line per audited request, for whoever reads logs and not tables: what the row says, without addresses. */
import { Context, Effect } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { redactKeys } from "../domain/Key.ts"

/** Whether requests are logged one by one; the terminal of an embedded gateway has better things to show. */
export const RequestLines = Context.Reference<boolean>("tollgate/observability/RequestLines", {
  defaultValue: () => false
})

export const requestLine = (record: AuditRecord): Effect.Effect<void> =>
  Effect.logInfo("request", {
    request_id: record.arrival.requestId,
    key: record.caller?.keyPrefix,
    tenant: record.caller?.tenantName,
    method: record.arrival.method,
    // A path we do not serve is the client's own text, as long as it likes; half a key would not look like one.
    endpoint: redactKeys(record.arrival.endpoint).slice(0, 128),
    model: record.model === undefined ? undefined : redactKeys(record.model).slice(0, 128),
    status: record.status,
    error: record.errorType,
    latency_ms: record.latencyMs,
    tokens_in: record.usage.tokensIn,
    tokens_out: record.usage.tokensOut
  })
