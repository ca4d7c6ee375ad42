/** What is written about a request. Everything here is public to operators: no secret, no prompt, no cause. */
import type { Caller } from "./Caller.ts"
import type { Usage } from "./Usage.ts"
import type { Reservation } from "./Reservation.ts"

/** What is known of every request the moment it arrives. Strings from outside are cleaned before they are stored. */
export interface Arrival {
  /** UUIDv7, ours */
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

/** Written before the backend is called: this request is about to cost tokens. */
export interface Intent {
  readonly arrival: Arrival
  readonly caller: Caller
  /** discovered name */
  readonly model: string
  readonly streamed: boolean
  /** its grip on the counters: `admittedAt` fixes the ledger day, `held` is what it holds, the rest settles it */
  readonly reservation: Reservation
  readonly promptEstimate: number
}

/** One audit row. */
export interface AuditRecord {
  readonly arrival: Arrival
  readonly caller?: Caller
  readonly model?: string
  readonly streamed: boolean
  readonly usage: Usage
  /** HTTP status; 499 = client left */
  readonly status: number
  /** the error's public type, e.g. `rate_limit_exceeded`; absent on success */
  readonly errorType?: string
  readonly latencyMs: number
  /** how long it waited for a place at the backend; absent when there is no line */
  readonly queuedMs?: number
}
