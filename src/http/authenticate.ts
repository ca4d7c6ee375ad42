/**
 * The first gate of every endpoint but health: nothing of a request is read before its sender is known.
 *
 * A key may stand in one place only: a single `Authorization: Bearer <key>` header (RFC 6750, section 2.1).
 */
import type { IncomingMessage } from "node:http"
import { Effect } from "effect"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { FreeWork } from "./FreeWork.ts"
import { addressGroup } from "./server/addressGroup.ts"

/** Scheme in any case, exactly one space; what follows is the key store's to judge. */
const bearer = /^bearer ([^\s]+)$/i

/**
 * The secret, or undefined for anything but exactly one well-formed header. Node keeps only the first of several
 * Authorization headers, so they are counted in the raw list.
 */
const bearerOf = (incoming: IncomingMessage): string | undefined => {
  let value: string | undefined
  for (let i = 0; i + 1 < incoming.rawHeaders.length; i += 2) {
    if (incoming.rawHeaders[i]?.toLowerCase() !== "authorization") continue
    if (value !== undefined) return undefined
    value = incoming.rawHeaders[i + 1]
  }
  return value === undefined ? undefined : bearer.exec(value)?.[1]
}

export const makeAuthenticate = Effect.gen(function* () {
  const [freeWork, keys] = [yield* FreeWork, yield* KeyStore]

  return (context: RequestContext, incoming: IncomingMessage) =>
    Effect.flatMap(keys.verify(bearerOf(incoming), addressGroup(context.arrival.clientIp)), (key) => {
      context.identify(key)
      return Effect.as(freeWork.check(key.known.caller), key)
    })
})
