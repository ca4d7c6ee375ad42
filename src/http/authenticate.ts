/**
 * The first gate of every endpoint except health: the body is not read before the sender is known.
 *
 * A key may be in one place only: one `Authorization: Bearer <key>` header (RFC 6750, section 2.1).
 */
import type { IncomingMessage } from "node:http"
import { Effect, Result } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { FreeWork } from "./FreeWork.ts"
import { addressGroup } from "./server/addresses.ts"
import { headerValues, namedHeaderOf } from "./server/headers.ts"

/** The scheme in any case, and exactly one space. The key store checks the rest. */
const bearer = /^bearer ([^\s]+)$/i

/** The secret, or undefined unless there is exactly one well-formed header. */
const bearerOf = (incoming: IncomingMessage): string | undefined => {
  const [value, ...others] = headerValues(incoming, "authorization")
  return value === undefined || others.length > 0 ? undefined : bearer.exec(value)?.[1]
}

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** Node reads the bytes of a header as Latin-1. Clients write names in UTF-8. */
const headerText = (value: string): string =>
  Result.getOrElse(
    Result.try(() => utf8.decode(Buffer.from(value, "latin1"))),
    () => value
  )

/** The header that the key's operator trusts to name the user; several of its name are one text, with commas. */
const endUserHeaderOf = (incoming: IncomingMessage, { endUserHeader }: Caller): string | undefined => {
  const value = endUserHeader === undefined ? undefined : namedHeaderOf(incoming, endUserHeader)
  return value === undefined ? undefined : headerText(value)
}

export const makeAuthenticate = Effect.gen(function* () {
  const [freeWork, keys] = [yield* FreeWork, yield* KeyStore]

  return Effect.fnUntraced(function* (
    context: RequestContext,
    incoming: IncomingMessage
  ): Effect.fn.Return<Evidence<"KeyStore">, GatewayError> {
    const key = yield* keys.verify(bearerOf(incoming), addressGroup(context.arrival.clientIp))
    context.key = key
    context.claimEndUser(endUserHeaderOf(incoming, key.facts.caller))
    yield* Effect.fromResult(freeWork.check(key.facts.caller))
    return key
  })
})
