/** One HTTP request with its response, and the Scope that closes after the last byte of the response. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Scope } from "effect"
import type { RequestContext } from "../request/RequestContext.ts"
import type { ReceivedBody } from "./server/ReceivedBody.ts"

export interface Exchange {
  readonly context: RequestContext
  readonly incoming: IncomingMessage
  readonly response: ServerResponse
  readonly received: ReceivedBody
  readonly scope: Scope.Scope
}
