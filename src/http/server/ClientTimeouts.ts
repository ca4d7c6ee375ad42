/** Time limits for clients. They are not settings: production needs no other values. */
import { Context } from "effect"

export interface ClientTimeoutsMs {
  /** for the head of a request, from the start of the connection or the end of the request before */
  readonly head: number
  /** for a body, after authentication; meanwhile the request holds only its socket */
  readonly body: number
  /** for a whole request, of any sender; also for bodies that are not wanted */
  readonly request: number
  /** between two requests on one connection */
  readonly idle: number
  /** how often the connections are looked at */
  readonly check: number
}

export const ClientTimeouts = Context.Reference<ClientTimeoutsMs>("tollgate/http/server/Patience", {
  defaultValue: () => ({ head: 15_000, body: 30_000, request: 60_000, idle: 65_000, check: 2_000 })
})
