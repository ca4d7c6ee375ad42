/** The first gate of every endpoint but health: nothing of a request is read before its sender is known. */
import type { IncomingMessage } from "node:http"
import { Effect } from "effect"
import { KeyStore } from "../gates/KeyStore/KeyStore.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { bearerOf } from "./bearer.ts"

export const authenticate = Effect.fnUntraced(function* (exchange: Exchange, incoming: IncomingMessage) {
  const keys = yield* KeyStore
  const key = yield* keys.verify(bearerOf(incoming))
  exchange.caller = key.value
  return key
})
