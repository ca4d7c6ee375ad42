/** The first gate of every endpoint but health: nothing of a request is read before its sender is known. */
import type { IncomingMessage } from "node:http"
import { Effect } from "effect"
import type { KeyStore } from "../gates/KeyStore/KeyStore.ts"
import type { Exchange } from "../pipeline/Exchange.ts"
import { bearerOf } from "./bearer.ts"

export const authenticate = (keys: KeyStore["Service"], exchange: Exchange, incoming: IncomingMessage) =>
  Effect.map(keys.verify(bearerOf(incoming)), (key) => {
    exchange.caller = key.value
    return key
  })
