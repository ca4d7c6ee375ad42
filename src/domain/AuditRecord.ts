/** The facts that the audit stores about a request. Operators read them: no secret, no prompt, no cause. */
import type { Caller } from "./Caller.ts"
import type { Usage } from "./Usage.ts"

/** The facts of a request when it arrives. Texts of clients are cleaned before they are stored. */
export interface Arrival {
  /** UUIDv7, made by the gateway */
  readonly requestId: string
  /** epoch ms */
  readonly arrivedAt: number
  readonly method: string
  /** raw target up to `?` */
  readonly endpoint: string
  readonly clientIp: string
  /** the client's own `X-Request-ID` */
  readonly clientRequestId?: string
}

/** One audit row. */
export interface AuditRecord {
  readonly arrival: Arrival
  readonly caller?: Caller
  readonly model?: string
  /** the name by which the request asked for the model, when it is an alias */
  readonly alias?: string
  /** for whom the request is, as its client claims (`EndUser.ts`) */
  readonly endUser?: string
  /** which account of an end user is charged beside the key's */
  readonly userAccount?: string
  /** whether the model server cut the prompt; absent when that is not known */
  readonly truncated?: boolean
  readonly streamed: boolean
  readonly usage: Usage
  /** HTTP status; 499 = client left */
  readonly status: number
  /** the error's public type, e.g. `rate_limit_exceeded`; absent on success */
  readonly errorType?: string
  /** why it was refused (`Errors.ts`); absent on success */
  readonly detail?: string
  /** what its client was told in `X-Hint`; only in the log */
  readonly hint?: string
  readonly latencyMs: number
  /** how long it waited for a place at the backend; absent without `BACKEND_MAX_CONCURRENT` */
  readonly queuedMs?: number
  /** how long the model server loaded the model for it; absent when it was loaded, or another request counts the load */
  readonly loadMs?: number
}
