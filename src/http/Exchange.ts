/** One HTTP request with its response. */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { RequestContext } from "../request/RequestContext.ts"
import type { ReceivedBody } from "./server/ReceivedBody.ts"

export interface Exchange {
  readonly context: RequestContext
  readonly incoming: IncomingMessage
  readonly response: ServerResponse
  readonly received: ReceivedBody
}
