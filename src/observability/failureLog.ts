/**
 * Decides what is logged of a failed request. A refusal is in its audit row only, but a body that
 * is too large is logged with the setting, because its user asks the operator for more. A failure of the gateway is logged with its
 * cause. The backend's text may contain paths, hosts and prompts, so it is logged at debug only (docs/hardening.md U07).
 *
 * An outage of a gate is logged with its cause once in ten seconds, with the number of other requests that failed. Each
 * single failure is logged at debug.
 */
import { Context, Effect, Layer } from "effect"
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Gate, GatewayError, Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"
import { loggedFault } from "./loggedFault.ts"

const remindMs = 10_000

/** The part of a request that a log line names. */
interface ArrivedRequest {
  readonly arrival: Pick<Arrival, "requestId">
}

/** A log line with the id of its request. */
export const withRequestId = (context: ArrivedRequest, line: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.annotateLogs(line, "request_id", context.arrival.requestId)

const make = Effect.map(makeMonotonicMs, (nowMs) => {
  const logs = new Map<Gate, OutageLog>()

  const outage = ({ cause, gate }: Unavailable) => {
    const log = logs.get(gate) ?? new OutageLog(nowMs, { remindMs })
    logs.set(gate, log)
    return log.failed(
      (failures) => Effect.logWarning("gate unavailable", { gate, failures }, cause),
      Effect.logDebug("gate unavailable", { gate }, cause)
    )
  }

  const lineOf = (error: GatewayError): Effect.Effect<void> => {
    switch (error._tag) {
      case "Unavailable":
        // A flood of requests must not become a flood of log lines. It is in the audit.
        return error.crowded === true
          ? Effect.logDebug("gate crowded", { gate: error.gate }, error.cause)
          : outage(error)
      case "PayloadTooLarge":
        return Effect.logInfo("request body too large", {
          limit_bytes: error.limitBytes,
          setting: "MAX_REQUEST_BODY_BYTES"
        })
      case "CircuitOpen":
        // The breaker logs once that it opened.
        return Effect.logDebug("circuit breaker open")
      case "BackendFailed":
        return Effect.andThen(
          Effect.logWarning("backend failed", loggedFault(error)),
          Effect.logDebug("backend failed", error.cause)
        )
      default:
        return Effect.void
    }
  }

  return { log: (context: ArrivedRequest, error: GatewayError) => withRequestId(context, lineOf(error)) }
})

/** One for the process, so that an outage is logged once and not once for each request. */
export class FailureLog extends Context.Service<FailureLog>()("tollgate/observability/FailureLog", { make }) {
  static readonly layer: Layer.Layer<FailureLog> = Layer.effect(FailureLog, make)
}
