/** The first gate of every endpoint but health: nothing of a request is read before its sender is known. */
import type { IncomingMessage } from "node:http"
import { Effect } from "effect"
import type { RequestContext } from "../request/RequestContext.ts"
import { bearerOf } from "./bearer.ts"
import type { Desk } from "./Desk.ts"

export const authenticate = (
  { freeWork, keys }: Pick<Desk, "freeWork" | "keys">,
  context: RequestContext,
  incoming: IncomingMessage
) =>
  Effect.flatMap(keys.verify(bearerOf(incoming)), (key) => {
    context.caller = key.value
    return Effect.as(freeWork.check(key.value.keyId), key)
  })
