/** Times of clients, in milliseconds. They are not settings; tests use shorter ones. */
import { Context } from "effect"

export interface ClientTimeoutsMs {
  /** for the head of a request, from the start of the connection or the end of the request before */
  readonly head: number
  /** for a body, after authentication */
  readonly body: number
  /** for a complete request, also from unknown callers and with a body that is not read */
  readonly request: number
  /** between two requests on one connection */
  readonly idle: number
  /** how often Node checks these limits */
  readonly check: number
  /** how long a client of server-sent events hears nothing: proxies cut a silent connection after a minute, or after half of one */
  readonly silence: number
}

export const ClientTimeouts = Context.Reference<ClientTimeoutsMs>("tollgate/http/server/ClientTimeouts", {
  defaultValue: () => ({
    head: 15_000,
    body: 30_000,
    request: 60_000,
    idle: 65_000,
    check: 2_000,
    silence: 10_000
  })
})
