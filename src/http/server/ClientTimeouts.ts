/** How long a client may take to say what it wants. Not settings: there is no good reason for others in production. */
import { Context } from "effect"

export interface ClientTimeoutsMs {
  /** for a request's head, from the first byte of the connection or the end of the request before */
  readonly head: number
  /** for a body, once its sender is known and it is wanted; it holds nothing but its socket meanwhile */
  readonly body: number
  /** for a whole request, whoever sent it: also what nobody wants to read */
  readonly request: number
  /** between two requests on one connection */
  readonly idle: number
  /** how often the connections are looked at */
  readonly check: number
}

export const ClientTimeouts = Context.Reference<ClientTimeoutsMs>("tollgate/http/server/Patience", {
  defaultValue: () => ({ head: 15_000, body: 30_000, request: 60_000, idle: 65_000, check: 2_000 })
})
