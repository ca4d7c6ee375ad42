/**
 * Writes one log line for each audited request, without addresses: all facts of its row in production, and one short line
 * at a terminal.
 */
import { Context, Effect } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { redactKeys } from "../domain/Key.ts"
import { totalTokens } from "../domain/Usage.ts"

export type RequestLine = (record: AuditRecord) => Effect.Effect<void>

/** Writes the line of a request; undefined when requests have none. */
export const RequestLines = Context.Reference<RequestLine | undefined>(
  "tollgate/observability/RequestLines",
  { defaultValue: () => undefined }
)

/** A blocked path and an unknown model are text of the client. Redacting comes before cutting, so that no half key is left. */
const cut = (text: string): string => redactKeys(text).slice(0, 128)

/** `POST /api/chat  m:latest  200  7 in, 3 out  41 ms` */
export const shortRequestLine: RequestLine = ({ arrival, errorType, latencyMs, model, status, usage }) =>
  Effect.logInfo(
    [
      `${arrival.method} ${cut(arrival.endpoint)}`,
      model === undefined ? "" : cut(model),
      `${status}${errorType === undefined ? "" : ` ${errorType}`}`,
      totalTokens(usage) === 0 ? "" : `${usage.tokensIn} in, ${usage.tokensOut} out`,
      `${latencyMs} ms`
    ]
      .filter((part) => part !== "")
      .join("  ")
  )

export const requestLine: RequestLine = (record) =>
  Effect.logInfo("request", {
    request_id: record.arrival.requestId,
    key: record.caller?.keyPrefix,
    tenant: record.caller?.tenantName,
    method: record.arrival.method,
    endpoint: cut(record.arrival.endpoint),
    model: record.model === undefined ? undefined : cut(record.model),
    status: record.status,
    error: record.errorType,
    latency_ms: record.latencyMs,
    tokens_in: record.usage.tokensIn,
    tokens_out: record.usage.tokensOut
  })
