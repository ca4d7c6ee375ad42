/**
 * Writes one log line for each audited request, without addresses: all facts of its row in production, and one short line
 * at a terminal.
 */
import { Context, Effect } from "effect"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { clientText } from "../domain/clientText.ts"
import { totalTokens } from "../domain/Usage.ts"

export type RequestLine = (record: AuditRecord) => Effect.Effect<void>

/** Writes the line of a request; undefined when requests have none. */
export const RequestLines = Context.Reference<RequestLine | undefined>(
  "tollgate/observability/RequestLines",
  { defaultValue: () => undefined }
)

/** A blocked path and an unknown model are text of the client. */
const shown = (text: string): string => clientText(text, 128)

/** `POST /api/chat  m:latest  200  7 in, 3 out  41 ms` */
export const shortRequestLine: RequestLine = ({ arrival, errorType, latencyMs, model, status, usage }) =>
  Effect.logInfo(
    [
      `${arrival.method} ${shown(arrival.endpoint)}`,
      model === undefined ? "" : shown(model),
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
    endpoint: shown(record.arrival.endpoint),
    model: record.model === undefined ? undefined : shown(record.model),
    status: record.status,
    error: record.errorType,
    latency_ms: record.latencyMs,
    tokens_in: record.usage.tokensIn,
    tokens_out: record.usage.tokensOut
  })
